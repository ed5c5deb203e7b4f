"""Embeddings by id, from wherever they lie."""

import warnings

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier

from obygaze_features.errors import BiasError
from obygaze_models.bias.vectors import open_vectors
from obygaze_models.estimators.concepts import ConceptBank
from obygaze_models.persistence import save_model
from tests.estimators.clips import tree_on

VEC = "rose 1 0.5\nlily -2e-1 3\nant 0 1\n"


@pytest.mark.parametrize("header", ["", "3 2\n"])
def test_a_vec_file_with_and_without_word2vecs_header(tmp_path, header):
    path = tmp_path / "words.vec"
    path.write_text(header + VEC.replace("\n", " \n", 1))
    ids, rows = open_vectors(path).read(["ant", "tulip", "rose"])
    assert ids == ["ant", "rose"]
    np.testing.assert_array_equal(rows, [[0, 1], [1, 0.5]])


def test_a_csv_file_with_prompts_for_names(tmp_path):
    path = tmp_path / "prompts.csv"
    path.write_text('text,0,1\n"a doctor, smiling",1,2\nnurse,3,-4\n')
    ids, rows = open_vectors(path).read(["nurse", "a doctor, smiling"])
    assert ids == ["nurse", "a doctor, smiling"]
    np.testing.assert_array_equal(rows, [[3, -4], [1, 2]])


@pytest.mark.parametrize(("name", "text"), [("a.vec", VEC), ("a.csv", "id,0,1\r\nrose,1,.5\r\n")])
def test_files_with_a_byte_order_mark(tmp_path, name, text):
    (tmp_path / name).write_bytes(text.encode("utf-8-sig"))
    ids, rows = open_vectors(tmp_path / name).read(["rose"])
    assert (ids, rows.tolist()) == (["rose"], [[1, 0.5]])


def test_what_pandas_writes(tmp_path):
    import pandas as pd

    frame = pd.DataFrame(np.eye(3), index=["one", "two", "three"])
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
    bank = ConceptBank("mean-difference").fit(X, Y, concept_names=["Look", "Facial expression"])
    backbone = {"name": "tiny", "weights_sha256": "0" * 64}
    save_model(bank, tmp_path / "bank", {"features": {"backbone": backbone}})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = tree_on(bank).fit(X, Y[:, 0])
    save_model(model, tmp_path / "model", {})
    for name, weights in (("bank", "0" * 64), ("model", "")):
        opened = open_vectors(tmp_path / name)
        ids, rows = opened.read(["Facial expression", "Look"])
        assert ids == ["Facial expression", "Look"]
        np.testing.assert_allclose(rows, bank.cavs_[[1, 0]])
        assert (list(opened.columns["id"]), opened.weights) == (
            ["Look", "Facial expression"],
            weights,
        )
    save_model(DummyClassifier(strategy="prior").fit(X, Y[:, 0]), tmp_path / "guess", {})
    with pytest.raises(BiasError, match="guess is a model without concept directions"):
        open_vectors(tmp_path / "guess")
