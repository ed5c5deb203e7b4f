"""The table of arrays: the format page lists it, and an added entry works everywhere."""

import math
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import obygaze_features as of
from obygaze_features.store import ArraySpec
from obygaze_features.store.arrays import ARRAYS, VECTOR, StoredArray
from tests.backbones.conftest import clips_for, pictures
from tests.kit.films import clips, write_clip
from tests.kit.models import TINY

AXES = {"D": "feature", "T": "frame", "L": "token", "1": "number"}
SEEING = [name for name in TINY if name in ("tiny-xclip", "tiny-vivit", "tiny-clip")]


def spread(tokens, mask=None):
    """Return the standard deviation over tokens, ignoring padding."""
    count = tokens.shape[-2] if mask is None else mask.sum(-2)
    masked = tokens if mask is None else tokens.where(mask, 0)
    mean = masked.sum(-2) / count
    squares = (masked - mean.unsqueeze(-2)).square()
    return ((squares if mask is None else squares.where(mask, 0)).sum(-2) / count).sqrt()


@pytest.fixture
def std(monkeypatch):
    entry = StoredArray(VECTOR, "float32", "standard deviation", spread)
    monkeypatch.setitem(ARRAYS, "std", entry)


def test_the_format_page_lists_every_array():
    page = (Path(of.__file__).parents[1] / "stores/README.md").read_text()
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| \[(.+)\] (\w+) \|", page, re.MULTILINE)
    listed = {
        name: (tuple(AXES[axis] for axis in shape.split(", ")), dtype)
        for names, shape, dtype in rows
        for name in re.findall(r"\w+", names)
    }
    table = {name: (entry.axes, entry.dtype) for name, entry in ARRAYS.items()}
    assert listed == table


@pytest.mark.parametrize("name", SEEING)
def test_one_table_entry_gives_every_family_an_array(checkpoints, std, name):
    backbone = of.load_backbone(checkpoints[name], "cpu", arrays=["std", "frames", "tokens"])
    spec = next(spec for spec in backbone.arrays if spec.name == "std")
    values = backbone.embed_clips(
        pixels := clips_for(backbone), torch.ones(pixels.shape[:2], dtype=torch.bool)
    )
    tokens = values["tokens" if name == "tiny-vivit" else "frames"].numpy()
    over = f"all {tokens.shape[1]:,} tokens" if name == "tiny-vivit" else "`frames`"
    assert spec.meaning == f"standard deviation over {over}"
    np.testing.assert_allclose(values["std"], tokens.std(1), atol=1e-6)


def test_added_arrays_ignore_padding(checkpoints, std):
    backbone = of.load_backbone(checkpoints["tiny-xclip-lsmdc"], "cpu", arrays=["std", "frames"])
    present = torch.arange(12)[None] < 5
    values = backbone.embed_clips(pictures(1, 12, 3, 32, 32), present)
    assert values["frames"][0, 5:].isnan().all()
    np.testing.assert_allclose(values["std"][0], values["frames"][0, :5].numpy().std(0), atol=1e-6)


class Colours(torch.nn.Module):
    """The mean of each channel."""

    def forward(self, pixels):
        return pixels.mean((-2, -1))


def test_a_custom_backbone_may_fill_an_added_array(tmp_path, std):
    """It computes the array itself. The table controls rates."""
    write_clip(tmp_path / "clip0.mp4", "S", seconds=1)
    net = of.Backbone.from_torch(Colours(), frames=8, size=16, name="own", layout="BCHW")
    array = ArraySpec.named("std", (3,), "standard deviation over `frames`")

    def encode_clips(pixels, present, names):
        arrays = net.encode_clips(pixels, present, names)
        return {**arrays, "std": arrays["frames"].std(1, correction=0)}

    own = net.with_changes(arrays=(*net.arrays, array), encode_clips=encode_clips)
    for folder, options in (("own", {}), ("rate", {"sampling": "8 fps"})):
        path = of.extract(clips("clip0.mp4"), tmp_path, own, tmp_path / folder, **options).stores[0]
        row = of.open_store(path)["clip0"]
        frames = row["frames"].astype(np.float64)
        expected = frames[~np.isnan(frames).any(1)].std(0)
        assert not math.isclose(expected.max(), 0, abs_tol=1e-4)
        np.testing.assert_allclose(row["std"], expected, atol=2e-3)
