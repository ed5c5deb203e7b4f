"""Small checkpoints of random weights."""

from __future__ import annotations

import pytest

from tests.tiny_models import Checkpoints


@pytest.fixture(scope="session")
def checkpoints(tmp_path_factory: pytest.TempPathFactory) -> Checkpoints:
    """The tiny checkpoints, by name. Nobody writes into them."""
    return Checkpoints(tmp_path_factory.mktemp("checkpoints"))
