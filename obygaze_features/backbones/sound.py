"""Turn windows of a clip's sound into an audio backbone's input."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.sampling import Samples, SoundSampling

if TYPE_CHECKING:
    from torch import Tensor

SHORTEST_S = 0.025
"""The shortest sound that extractors and networks accept; shorter sound is padded with silence."""
FRAMES_PER_STEP = 64
"""The number of frames transformed together, so that they fit the processor's cache."""
SINGLE_THREADED = 1 << 18
"""The maximum number of multiplications that OpenBLAS does in the calling thread. Beyond this, it
starts threads that compete with those of other windows, and the result would depend on the number
of threads.
"""

MEL_FLOOR = 1e-10
EXTRACTOR = "ClapFeatureExtractor"
"""The class in transformers that turns sound into CLAP's input."""


@dataclass(frozen=True)
class SoundPreprocessing:
    """The steps that turn windows of sound into a backbone's input.

    Parameters
    ----------
    sampling
        The rule that chooses windows.
    settings
        All settings of transformers' extractor that affect its output.
    """

    sampling: SoundSampling
    settings: Mapping[str, Any]

    def attributes(self) -> dict[str, Any]:
        """Return the settings as recorded in a store's attributes."""
        return {"mode": "standard", "extractor": {"class": EXTRACTOR, **self.settings}}

    def inputs(self, sound: Samples) -> Tensor:
        """Turn a clip's mono sound, at the sampling's rate, into the network's input ``[W, ...]``.

        Each window is computed separately on the CPU, so that its result depends on nothing else.
        """
        import torch

        extract = _make_extractor(json.dumps(dict(self.settings)))
        rate = self.sampling.rate
        windows = []
        for first, end in self.sampling.windows(len(sound)):
            window = np.zeros(max(end - first, round(SHORTEST_S * rate)), np.float32)
            window[: end - first] = sound[first:end]
            # Absurd samples overflow, and the store then refuses the result.
            with np.errstate(all="ignore"):
                output = extract(window, sampling_rate=rate)
            values = np.asarray(output["input_features"][0], np.float32)
            windows.append(torch.from_numpy(values))
        return torch.stack(windows)


@lru_cache(maxsize=8)
def _make_extractor(settings: str) -> Any:
    """Return CLAP's feature extractor, with our `spectrogram`."""
    from transformers import ClapFeatureExtractor
    from transformers.audio_utils import window_function

    extractor = ClapFeatureExtractor(**json.loads(settings))
    hann = window_function(extractor.fft_window_size, "hann")
    compute = partial(spectrogram, window=hann, hop_length=extractor.hop_length)
    vars(extractor)["_np_extract_fbank_features"] = compute
    return extractor


def spectrogram(
    waveform: Samples,
    mel_filters: NDArray[Any],
    *,
    window: NDArray[Any],
    hop_length: int,
) -> Samples:
    """Return a mel spectrogram ``[frames, mels]`` in dB, like ``ClapFeatureExtractor``.

    The result is bitwise equal to that of transformers, which computes one frame at a time in
    Python and so holds the interpreter lock. Here, NumPy computes many frames at a time without the
    lock, so several threads can run in parallel.
    """
    from transformers import audio_utils

    waveform = np.pad(waveform, len(window) // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(waveform, len(window))[::hop_length]
    mel = np.empty((mel_filters.shape[1], len(frames)))
    frames_per_product = max(1, SINGLE_THREADED // mel_filters.size)
    for begin in range(0, len(frames), FRAMES_PER_STEP):
        step = frames[begin : begin + FRAMES_PER_STEP].astype(np.float64)
        step *= window
        spectrum = np.fft.rfft(step).astype(np.complex64)
        powers = np.abs(spectrum, dtype=np.float64) ** 2.0
        for first in range(0, len(powers), frames_per_product):
            part = powers[first : first + frames_per_product]
            mel[:, begin + first :][:, : len(part)] = mel_filters.T @ part.T
    decibels: NDArray[np.float64] = audio_utils.power_to_db(np.maximum(MEL_FLOOR, mel))
    return decibels.astype(np.float32).T
