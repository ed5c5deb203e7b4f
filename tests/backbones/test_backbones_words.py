"""Hashed words against scikit-learn's HashingVectorizer; stores contain no words."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction.text import HashingVectorizer

import obygaze_features as of
from obygaze_features.errors import StoreError
from obygaze_features.manifests import Item, Items
from tests.kit.files import contents

TEXTS = [
    "Look at her: I'm a fool, a fool!",
    "",
    "\u017eena d\u00e9j\u00e0-vu _x 10 000",
    "the the of the",
]


def spoken(texts):
    items = [
        Item(f"c{n}", kind="text", film="f", text=text, start=60 * n, end=60 * n + 60)
        for n, text in enumerate(texts)
    ]
    return of.Manifest("spoken", Items.of(items))


@pytest.fixture(scope="module")
def words():
    return of.load_backbone("words", "cpu")


@given(texts=st.lists(st.text(), min_size=1, max_size=4))
def test_words_are_hashed_as_by_scikit_learn(words, texts):
    truth = HashingVectorizer(n_features=1024, ngram_range=(1, 2))
    expected = truth.transform([*TEXTS, *texts]).toarray()
    ours = words.embed("text", [*TEXTS, *texts])["native"]
    np.testing.assert_allclose(ours, expected, atol=1e-7)


def test_a_store_has_numbers_and_no_words(tmp_path):
    manifest = spoken(TEXTS)
    [path] = of.extract(manifest, None, "words", tmp_path).stores
    store = of.finalise(path)
    assert store.attributes["items_digest"] == manifest.digest
    assert store.read("count").ravel().tolist() == [5, 0, 6, 4]  # "a" and "I" are too short
    assert not store.read("native")[1].any()
    held = b"".join(contents(path).values()).lower()
    assert not any(word in held for word in (b"fool", b"look at", "\u017eena".encode()))
    assert not of.verify(path)
    with pytest.raises(StoreError):  # other words in the same clips are another manifest
        of.extract(spoken(["else", *TEXTS[1:]]), None, "words", tmp_path)
