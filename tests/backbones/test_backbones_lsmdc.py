"""X-CLIP of Ma et al. against what that work's own code computed, and its files."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from obygaze_features.backbones import load_backbone
from obygaze_features.backbones.sampling import Sampling
from obygaze_features.errors import BackboneError
from tests.backbones.conftest import all_present, pictures

ALL = ["native", "max", "mean", "frames", "frames_temporal", "tokens"]


@pytest.fixture(scope="module")
def golden(authors: Path) -> Path:
    return authors / "golden/xclip_lsmdc"


def test_the_authors_own_outputs_are_met(golden):
    backbone = load_backbone(f"lsmdc={golden / 'pytorch_model.bin.0'}", "cpu", arrays=ALL)
    assert backbone.sampling == Sampling(12, rate=1)
    with np.load(golden / "expected.npz", allow_pickle=False) as file:
        theirs = {name: torch.from_numpy(file[name]) for name in file.files}
    present = theirs["video_mask"].bool()
    ours = backbone.embed_clips(theirs["pixel_values"].float(), present)

    torch.testing.assert_close(ours["native"], theirs["native"], atol=1e-5, rtol=0)
    patches = {"tokens": ours["tokens"].unflatten(1, (12, -1))}
    for name, values in (ours | patches).items():
        if name in ("frames", "frames_temporal", "tokens"):
            torch.testing.assert_close(values[present], theirs[name][present], atol=1e-5, rtol=0)
            # Where the authors have values of black pictures, we say that there was no frame.
            assert values[~present].isnan().all()
    nine = theirs["frames"][1, :9]
    torch.testing.assert_close(ours["max"][1], nine.max(0).values, atol=1e-5, rtol=0)
    torch.testing.assert_close(ours["mean"][1], nine.mean(0), atol=1e-5, rtol=0)


def test_what_stands_in_the_padding_does_not_matter(checkpoints):
    backbone = load_backbone(str(checkpoints["tiny-xclip-lsmdc"]), "cpu")
    pixels = pictures(2, 12, 3, 32, 32)
    present = all_present(pixels)
    present[0, 1:] = False  # a clip of under two seconds
    one = backbone.embed_clips(pixels, present)
    other = backbone.embed_clips(pixels.where(present[..., None, None, None], 7.0), present)
    for name in one:
        torch.testing.assert_close(one[name], other[name], atol=0, rtol=0, equal_nan=True)
        assert one[name][1].isfinite().all()
    torch.testing.assert_close(one["max"][0], one["frames"][0, 0])


def test_frames_know_their_place(checkpoints):
    backbone = load_backbone(str(checkpoints["tiny-xclip-lsmdc"]), "cpu")
    pixels = pictures(1, 12, 3, 32, 32)
    forward, backward = (
        backbone.embed_clips(clip, all_present(clip)) for clip in (pixels, pixels.flip(1))
    )
    torch.testing.assert_close(forward["mean"], backward["mean"], atol=1e-5, rtol=0)
    assert (forward["native"] - backward["native"]).abs().max() > 1e-4


def test_a_file_or_its_folder_is_given(golden, tmp_path):
    shutil.copy(golden / "pytorch_model.bin.0", tmp_path / "pytorch_model.bin.3")
    file = load_backbone(str(tmp_path / "pytorch_model.bin.3"), "cpu")
    folder = load_backbone(str(tmp_path), "cpu")
    assert file.name == folder.name == tmp_path.name
    assert file.about == folder.about
    shutil.copy(golden / "pytorch_model.bin.0", tmp_path / "pytorch_model.bin.4")
    with pytest.raises(BackboneError, match=r"2 checkpoints; name one of them: .*bin.3 \.\.\. "):
        load_backbone(str(tmp_path), "cpu")


def test_the_mode_of_preprocessing_changes_nothing(checkpoints):
    path = str(checkpoints["tiny-xclip-lsmdc"])
    standard, author = (load_backbone(path, "cpu", mode=mode) for mode in ("standard", "author"))
    assert standard.preprocessing == author.preprocessing


class Bomb:
    """What runs code when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self):
        return Path.touch, (self.trace,)


def changed(path: Path, change) -> Path:
    state = torch.load(path / "pytorch_model.bin.0", weights_only=True)
    change(state)
    torch.save(state, path / "pytorch_model.bin.0")
    return path


BROKEN = {
    "not ours": (lambda s: s.pop("frame_mat_weight"), "it lacks frame_mat_weight; for any other"),
    "a weight lost": (
        lambda s: s.pop("transformerClip.resblocks.2.ln_1.bias"),
        "lacks 1 weights, such as transformerClip.resblocks.2.ln_1.bias",
    ),
    "another shape": (
        lambda s: s.update({"clip.visual.ln_pre.bias": torch.zeros(3)}),
        r"clip.visual.ln_pre.bias has the shape \(3,\), not \(64,\)",
    ),
    "no square": (
        lambda s: s.update({"clip.visual.positional_embedding": torch.zeros(16, 64)}),
        "sizes that no X-CLIP has: 15 patches",
    ),
    "not tensors": (lambda s: s.update({"epoch": 3}), "something other than tensors"),
    "flat": (lambda s: s.update({"clip.visual.proj": torch.zeros(3)}), r"has the shape \(3,\)"),
}


@pytest.mark.parametrize(("change", "named"), BROKEN.values(), ids=BROKEN)
def test_a_checkpoint_that_does_not_fit_is_one_line(copy, change, named):
    path = changed(copy("tiny-xclip-lsmdc"), change)
    with pytest.raises(BackboneError, match=named) as caught:
        load_backbone(str(path), "cpu")
    assert "\n" not in str(caught.value)


def test_a_pickle_that_would_run_code_does_not(copy, tmp_path):
    path, trace = copy("tiny-xclip-lsmdc"), tmp_path / "ran"
    changed(path, lambda state: state.update(bomb=Bomb(trace)))
    with pytest.raises(BackboneError, match=r"more than tensors.* could run code"):
        load_backbone(str(path), "cpu")
    assert not trace.exists()
    # The same file does run code for one who is less careful.
    torch.load(path / "pytorch_model.bin.0", weights_only=False)
    assert trace.exists()


@pytest.mark.parametrize("kept", [0, 7, 1000])
def test_a_truncated_file_is_one_line(copy, kept):
    file = copy("tiny-xclip-lsmdc") / "pytorch_model.bin.0"
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(BackboneError, match=r"not a checkpoint .*; is it complete") as caught:
        load_backbone(str(file), "cpu")
    assert "\n" not in str(caught.value)
