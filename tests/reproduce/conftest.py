from __future__ import annotations

from pathlib import Path

import pytest

from tests.reproduce.fake_dataset import FakeDataset, make_fake_dataset


@pytest.fixture(scope="session")
def dataset(authors: Path, tmp_path_factory: pytest.TempPathFactory) -> FakeDataset:
    return make_fake_dataset(tmp_path_factory.mktemp("authors"), authors, widths=(48, 48, 48))
