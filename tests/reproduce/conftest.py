from __future__ import annotations

from pathlib import Path

import pytest

from tests.reproduce.made_up import MadeUp, make_authors


@pytest.fixture(scope="session")
def made_up(authors: Path, tmp_path_factory: pytest.TempPathFactory) -> MadeUp:
    return make_authors(tmp_path_factory.mktemp("authors"), authors, widths=(48, 48, 48))
