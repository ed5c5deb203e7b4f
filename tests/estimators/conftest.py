from __future__ import annotations

from pathlib import Path

import pytest

from obygaze_models.dataset import ClipDataset
from tests.estimators.clips import authors_clips


@pytest.fixture(scope="session")
def labelled(authors: Path) -> ClipDataset:
    """The authors' clips and labels; features of our own."""
    return authors_clips(authors)
