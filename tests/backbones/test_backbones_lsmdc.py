"""The X-CLIP of Ma et al. against outputs of its authors' code, and its files."""

import numpy as np
import torch

import obygaze_features as of
from obygaze_features.sampling import Sampling
from tests.backbones.conftest import embed, pictures, run
from tests.kit.floats import close


def test_outputs_equal_the_authors(authors):
    golden = authors / "golden/xclip_lsmdc"
    all_arrays = ["native", "max", "mean", "frames", "frames_temporal", "tokens"]
    backbone = of.load_backbone(f"lsmdc={golden / 'pytorch_model.bin.0'}", "cpu", arrays=all_arrays)
    assert backbone.clip.sampling == Sampling(12, rate=1)
    with np.load(golden / "expected.npz", allow_pickle=False) as file:
        expected = {name: torch.from_numpy(file[name]) for name in file.files}
    present = expected["video_mask"].bool()
    ours = run(backbone, expected["pixel_values"].float(), present)

    torch.testing.assert_close(ours["native"], expected["native"], atol=1e-5, rtol=0)
    patches = {"tokens": ours["tokens"].unflatten(1, (12, -1))}
    for name, values in (ours | patches).items():
        if name in ("frames", "frames_temporal", "tokens"):
            torch.testing.assert_close(values[present], expected[name][present], atol=1e-5, rtol=0)
            # Where the authors have values for black pictures, we record a missing frame.
            assert values[~present].isnan().all()
    nine = expected["frames"][1, :9]
    torch.testing.assert_close(ours["max"][1], nine.amax(0), atol=1e-5, rtol=0)
    torch.testing.assert_close(ours["mean"][1], nine.mean(0), atol=1e-5, rtol=0)


def test_padding_does_not_matter_but_position_does(checkpoints):
    backbone = of.load_backbone(str(checkpoints["tiny-xclip-lsmdc"]), "cpu")
    pixels = pictures(1, 12, 3, 32, 32)
    present = torch.zeros(1, 12, dtype=torch.bool)
    present[0, :1] = True  # a clip of under two seconds
    first = run(backbone, pixels, present)
    padded = pixels.where(present[..., None, None, None], 7.0)
    changed = run(backbone, padded, present)
    for name in first:
        torch.testing.assert_close(first[name], changed[name], atol=0, rtol=0, equal_nan=True)
    [mean] = first["mean"].numpy()
    assert mean == close(first["frames"][0, 0].numpy())

    forward = embed(backbone, pixels)
    backward = embed(backbone, pixels.flip(1))
    torch.testing.assert_close(forward["mean"], backward["mean"], atol=1e-5, rtol=0)
    assert (forward["native"] - backward["native"]).abs().max() > 1e-4
