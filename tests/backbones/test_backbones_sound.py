"""Sound families against transformers' own feature extractors and forward passes."""

import pickle
from dataclasses import replace

import numpy as np
import torch
import transformers
from threadpoolctl import threadpool_limits

import obygaze_features as of
from obygaze_features.sampling import SoundSampling
from tests.backbones import conftest as kit
from tests.backbones.test_backbones_parity import close
from tests.kit.models import with_clip

CLAP = "tiny-clap"


def hear(backbone, *sounds):
    return kit.embed(backbone, kit.clips_for(backbone, sounds=sounds))


def test_sound_is_embedded_as_by_transformers(copy):
    folder = copy(CLAP)
    kit.shuffle_norms(folder)
    model = transformers.ClapModel.from_pretrained(folder).eval()
    extractor = transformers.AutoFeatureExtractor.from_pretrained(folder)
    backbone = of.load_backbone(folder, "cpu")
    rate = backbone.clip.sampling.rate
    size = round(rate * backbone.clip.sampling.window)
    long = 9 * size + size // 3
    short = size // 3
    tail = size // 4
    of_long = [*range(0, 9 * size, size), long - size]
    starts = [of_long, [0], [0, tail]]
    sounds = [kit.noise(samples, samples) for samples in (long, short, size + tail)]
    together = hear(backbone, *sounds)
    for clip, (sound, firsts) in enumerate(zip(sounds, starts, strict=True)):
        expected = []
        for first in firsts:
            window = sound[first : first + size]
            x = extractor(window, sampling_rate=rate, return_tensors="pt")
            with torch.no_grad():
                expected.append(kit.tensor(model.get_audio_features(**x)))
        count = len(firsts)
        frames, rest = together["frames"][clip].split([count, 64 - count])
        assert (rest == kit.MISSING).all()
        close(together["native"][clip], frames.mean(0), 1e-6)
        assert count == 1 or torch.pdist(frames).min() > 1e-4
        # transformers returns only the direction.
        assert (frames.norm(dim=1) - 1).abs().min() > 0.01
        close(torch.nn.functional.normalize(frames, dim=1), torch.cat(expected))
    # The bits of a clip do not depend on the rest of the batch or on the process.
    steps = pickle.loads(pickle.dumps(backbone.clip.preprocessing))
    for array, values in hear(with_clip(backbone, preprocessing=steps), sound).items():
        assert torch.equal(values[0], together[array][-1])
    # If there is less sound than an extractor takes, silence follows.
    assert hear(backbone, sounds[0][:3])["native"].isfinite().all()


def test_spectrograms_equal_transformers_bit_for_bit(checkpoints):
    """Windows of the published size are loud, quiet, short or silent."""
    steps = of.load_backbone(checkpoints[CLAP], "cpu").clip.preprocessing
    reference = transformers.ClapFeatureExtractor(truncation="rand_trunc", frequency_min=50)
    rate = reference.sampling_rate
    settings = {name: getattr(reference, name) for name in steps.settings}
    steps = replace(steps, settings=settings, sampling=SoundSampling(rate, 10, 10))
    sound = kit.noise(10 * rate)
    short = sound[: rate // 3]
    for window in (sound, 5 * sound, 1e-4 * sound, short, 0 * sound):
        with threadpool_limits(1):  # their last bits depend on the number of threads
            expected = reference(window, sampling_rate=rate)["input_features"]
        np.testing.assert_array_equal(steps.inputs(window), expected)
