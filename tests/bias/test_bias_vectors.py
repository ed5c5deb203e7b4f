"""Embeddings by id, from files, stores and models."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.dummy import DummyClassifier

from obygaze_features.errors import BiasError
from obygaze_models.bias.vectors import open_vectors
from obygaze_models.estimators.concepts import ConceptBank
from obygaze_models.persistence import save_model
from tests.estimators.clips import tree_on
from tests.kit.files import write

VEC = ("rose 1 0.5 ", "lily -2e-1 3", "ant 0 1")


def test_files_of_embeddings(tmp_path):
    expected = [[0, 1], [1, 0.5]]
    for lines in (VEC, ("3 2", *VEC)):  # without and with word2vec's header
        for encoding in ("utf-8", "utf-8-sig"):
            path = write(tmp_path / "words.vec", *lines, encoding=encoding)
            ids, rows = open_vectors(path).read(["ant", "tulip", "rose"])
            assert (ids, rows.tolist()) == (["ant", "rose"], expected)
    lines = ("text,0,1", '"a doctor, smiling",1,2', "nurse,3,-4")  # prompts for names
    path = write(tmp_path / "prompts.csv", *lines, encoding="utf-8-sig")
    ids, rows = open_vectors(path).read(["nurse", "a doctor, smiling"])
    assert (ids, rows.tolist()) == (["nurse", "a doctor, smiling"], [[3, -4], [1, 2]])
    frame = pd.DataFrame(np.eye(3), index=["one", "two", "three"])  # as pandas writes it
    frame.to_csv(tmp_path / "frame.csv")
    ids, rows = open_vectors(tmp_path / "frame.csv").read(["three", "one"])
    np.testing.assert_array_equal(rows, frame.loc[ids].to_numpy())


def test_a_store_with_its_items_and_a_pooled_array(images):
    native = open_vectors(images.store)
    ids, rows = native.read(["science-man-1", "nobody", "science-man-0"])
    assert ids == ["science-man-1", "science-man-0"]
    np.testing.assert_array_equal(rows, [images.of[item] for item in ids])
    assert native.backbone == "clip-vit-base-patch32"
    assert set(native.columns["gender"]) == {"woman", "man"}
    _, pooled = open_vectors(images.store, "frames", "mean").read(ids)
    np.testing.assert_allclose(pooled, rows.astype(np.float16), rtol=1e-6)


def test_concepts_of_a_saved_bottleneck_and_of_a_bank(tmp_path):
    chance = np.random.default_rng(0)
    X, Y = chance.normal(size=(60, 8)), chance.integers(0, 2, size=(60, 2))
    names = ["Look", "Facial expression"]
    bank = ConceptBank("mean-difference").fit(X, Y, concept_names=names)
    backbone = {"name": "tiny", "weights_sha256": "0" * 64}
    save_model(bank, tmp_path / "bank", {"features": {"backbone": backbone}})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = tree_on(bank).fit(X, Y[:, 0])
    save_model(model, tmp_path / "model", {})
    for name, weights in (("bank", "0" * 64), ("model", "")):
        opened = open_vectors(tmp_path / name)
        ids, rows = opened.read(names[::-1])
        assert ids == names[::-1]
        np.testing.assert_allclose(rows, bank.cavs_[[1, 0]])
        assert (list(opened.columns["id"]), opened.weights) == (names, weights)
    save_model(DummyClassifier(strategy="prior").fit(X, Y[:, 0]), tmp_path / "guess", {})
    with pytest.raises(BiasError, match="guess is a model without concept directions"):
        open_vectors(tmp_path / "guess")
