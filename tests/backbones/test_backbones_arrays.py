"""The table of arrays: the format page lists it, and an added entry works everywhere."""

import numpy as np
import pytest
import torch

import obygaze_features as of
from obygaze_features.backbones.pools import POOLS
from obygaze_features.store.arrays import ARRAYS, VECTOR, StoredArray
from tests.backbones.conftest import clips_for, on_each, run
from tests.kit.models import TINY

SEEING = [name for name in TINY if name in ("tiny-xclip", "tiny-vivit", "tiny-clip")]


def spread(tokens, mask=None):
    """Return the standard deviation over tokens."""
    return tokens.std(-2, correction=0)


@pytest.fixture
def std(monkeypatch):
    entry = StoredArray(VECTOR, "float32", "standard deviation")
    monkeypatch.setitem(ARRAYS, "std", entry)
    monkeypatch.setitem(POOLS, "std", spread)


@on_each(SEEING, always=("tiny-vivit",))
def test_one_table_entry_gives_every_family_an_array(checkpoints, std, name):
    backbone = of.load_backbone(checkpoints[name], "cpu", arrays=["std", "frames", "tokens"])
    spec = next(spec for spec in backbone.arrays if spec.name == "std")
    pixels = clips_for(backbone)
    values = run(backbone, pixels, torch.ones(pixels.shape[:2], dtype=torch.bool))
    tokens = values["tokens" if name == "tiny-vivit" else "frames"].numpy()
    over = f"all {tokens.shape[1]:,} tokens" if name == "tiny-vivit" else "`frames`"
    assert spec.meaning == f"standard deviation over {over}"
    np.testing.assert_allclose(values["std"], tokens.std(1), atol=1e-6)
