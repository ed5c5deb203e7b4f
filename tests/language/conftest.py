"""Small models that read texts, of random weights."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.tiny_models import write_gpt2, write_sentence_encoder

TEXTS = [
    "a man riding a motorcycle on a road",
    "a woman",
    "two women sitting on a sofa, one of them with a small dog",
    "Señora Ünal isst gern \u00bfqu\u00e9?",
    "a",
]


@pytest.fixture(scope="session")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A language model. Nobody writes into it."""
    folder = tmp_path_factory.mktemp("models") / "gpt2"
    folder.mkdir()
    write_gpt2(folder, seed=3)
    return folder


@pytest.fixture(scope="session")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sentence encoder. Nobody writes into it."""
    folder = tmp_path_factory.mktemp("models") / "encoder"
    folder.mkdir()
    write_sentence_encoder(folder, seed=3)
    return folder
