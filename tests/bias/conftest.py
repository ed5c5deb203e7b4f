"""What is embedded is made once."""

from __future__ import annotations

import pytest

from tests.bias.embeddings import Embedded, make_images, make_prompts


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Embedded:
    return make_images(tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="session")
def prompts(tmp_path_factory: pytest.TempPathFactory) -> Embedded:
    return make_prompts(tmp_path_factory.mktemp("prompts"))
