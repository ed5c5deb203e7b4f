"""Embeddings that are made once."""

import pytest

from tests.kit.embeddings import make_images, make_prompts


@pytest.fixture(scope="session")
def images(tmp_path_factory):
    return make_images(tmp_path_factory.mktemp("images"))


@pytest.fixture(scope="session")
def prompts(tmp_path_factory):
    return make_prompts(tmp_path_factory.mktemp("prompts"))
