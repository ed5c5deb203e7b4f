"""Small models that read texts, of random weights. Nobody writes into them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tiny_models import write_gpt2, write_sentence_encoder


@pytest.fixture(scope="session")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "gpt2"
    folder.mkdir()
    write_gpt2(folder, seed=3)
    return folder


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "encoder"
    folder.mkdir()
    write_sentence_encoder(folder, seed=3)
    return folder
