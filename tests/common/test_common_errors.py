"""The cost of making an error, which a loop may catch by the thousand."""

import huggingface_hub

from obygaze_features.errors import StoreError

TOKEN = "hf_0123456789abcdefghij"


def test_the_hub_token_is_read_only_to_redact_messages(monkeypatch):
    reads = []
    monkeypatch.setattr(huggingface_hub, "get_token", lambda: reads.append(1) or TOKEN)
    assert str(StoreError("x.zarr", "has no row 'a-1'")) == "x.zarr has no row 'a-1'"
    assert not reads
    assert str(StoreError(f"401: Bearer {TOKEN}")) == "401: Bearer ***"
    assert reads
