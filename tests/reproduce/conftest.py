from __future__ import annotations

from pathlib import Path

import pytest

from obygaze_models.reproduce import reproduce as module
from tests.reproduce.fake_dataset import FakeDataset, make_fake_dataset


@pytest.fixture(scope="session")
def dataset(authors: Path, tmp_path_factory: pytest.TempPathFactory) -> FakeDataset:
    return make_fake_dataset(tmp_path_factory.mktemp("authors"), authors, widths=(48, 48, 48))


@pytest.fixture(autouse=True, scope="session")
def _one_process():
    """What tests replace is replaced in this process alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "usable_cores", lambda: 1)
        yield
