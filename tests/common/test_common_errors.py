"""The cost of making an error, which a loop may catch by the thousand."""

import re
import time

import huggingface_hub
import pytest

from obygaze_features.errors import StoreError, UnknownItem
from obygaze_features.manifests import Item, Items, Manifest

TOKEN = "hf_0123456789abcdefghij"


def test_the_hub_token_is_read_only_to_redact_messages(monkeypatch):
    reads = []
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: reads.append(1) or TOKEN)
    assert str(StoreError("x.zarr", "has no row 'a-1'")) == "x.zarr has no row 'a-1'"
    assert not reads
    assert str(StoreError(f"401: Bearer {TOKEN}")) == "401: Bearer ***"
    assert reads


def test_an_unknown_id_among_many_gets_a_quick_suggestion():
    ids = [f"tt{row // 50:07}-{row % 50:03}" for row in range(20_000)]
    manifest = Manifest("many", Items.of([Item(name, media="x.mp4") for name in ids]))
    begin = time.process_time()
    [re.sub("0+", "", identifier) for identifier in ids]
    one_pass = time.process_time() - begin
    seconds = []
    for unknown in ("tt0000009-51", "scene-1", "tt0000300-01"):
        begin = time.process_time()
        with pytest.raises(UnknownItem) as caught:
            manifest[unknown]
        seconds.append(time.process_time() - begin)
    assert "did you mean tt0000300-001" in str(caught.value)
    assert max(seconds) < 3 * one_pass
