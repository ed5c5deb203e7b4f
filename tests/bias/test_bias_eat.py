"""``obygaze bias eat``: batteries, embeddings by id, and the command."""

import json
import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.dummy import DummyClassifier

import obygaze_features as of
from obygaze_features.errors import BiasError
from obygaze_features.manifests import LabelSet
from obygaze_models.bias.association import Settings, associate, associate_each
from obygaze_models.bias.battery import read_battery
from obygaze_models.bias.inputs import open_vectors
from obygaze_models.estimators.concepts import ConceptBank
from obygaze_models.saved.persistence import save_model
from tests.kit.clips import CLIP, STIMULI, WEIGHTS, sets, tree_on
from tests.kit.files import csv_rows, refused, texts, tips, write
from tests.kit.floats import close
from tests.kit.run import write_store


def expected(images, prompts, job, settings=None):
    sides = (images.rows(f"{job}-{gender}") for gender in ("woman", "man"))
    words = prompts.rows("objectifying"), prompts.rows(job)
    return associate(*sides, *words, settings or Settings())


def only_row(result):
    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.stdout)["rows"]
    return row


def is_result(row, result):
    assert (row["d"], row["p"]) == close((result.d, result.p))


@pytest.fixture
def eat(obygaze, images, prompts):
    def eat(*arguments, store=images.store, texts=prompts.store, code=None):
        words = ("--texts", texts) if texts else ()
        return obygaze("bias", "eat", "--store", store, *words, *arguments, code=code)

    return eat


def test_a_battery_is_printed_tabulated_and_drawn(eat, images, prompts, tmp_path):
    result = eat("professions", code=3)
    assert "medicine is left out: no selected item has the profession 'medicine'" in result.stderr
    lines = result.stdout.splitlines()[2:]
    assert lines[1].endswith("+1.03*")
    assert "p over all partitions (924)" in lines[2]
    assert "p from a normal distribution" in eat("professions", "--p", "normal").stdout
    table, as_json, svg = (tmp_path / f"eat.{suffix}" for suffix in ("csv", "json", "svg"))
    outputs = [word for path in (table, as_json, svg) for word in ("-o", path)]
    published = ("--published", "CLIP ViT-L/14")
    result = eat("professions", *outputs, "--json", *published, code=3)
    printed = json.loads(result.stdout)
    assert printed == json.loads(as_json.read_text())
    assert (printed["battery"], printed["model"]) == ("professions", "CLIP ViT-L/14")
    assert (list(printed["left_out"]), len(printed["rows"])) == (["medicine"], 2)
    words = texts(svg)
    published = {"science": None, "business": 0.68}
    for text, row, line in zip(lines, printed["rows"], csv_rows(table), strict=False):
        job, correct = row["test"], expected(images, prompts, row["test"])
        assert (row["item"], row["p_is"], row["partitions"]) == (None, "exact", 924)
        assert row["significant"] == (correct.p < 0.05)
        for key in ("d", "statistic", "p", "low", "high"):
            assert row[key] == close(getattr(correct, key))
            assert float(line[key]) == row[key]
        assert row["published_d"] == published[job]
        assert line["published_d"] == str(published[job] or "")
        d = f"{correct.d:+.2f}" + "*" * (correct.p < 0.05)
        assert text.split()[:6] == [job, "6", "6", "12", "12", d]
        assert {d.replace("-", "−"), f"{row['p']:.4f}"} <= set(words)
    drawn = tips(svg)
    assert drawn["business, here"].startswith(f"{row['d']:+.2f}".replace("-", "−"))
    assert drawn["business, published"] == "+0.68"
    assert "the interval is from resampling items" in " ".join(words)
    refused(eat("professions", *outputs), "eat.csv already exists", "--overwrite")


def write_table(path, vectors):
    pd.DataFrame.from_dict(vectors, orient="index").to_csv(path, index_label="id")
    return path


def test_sets_are_named_by_columns_ids_levels_or_a_file(eat, images, prompts, tmp_path):
    """Tables of embeddings have no columns, and a manifest may exceed its store."""
    table = write_table(tmp_path / "images.csv", images.by_id)
    manifest = of.Manifest.load(images.manifest)
    levels = ["S" if "woman" in item else "EN" for item in manifest.ids]
    labels = LabelSet("rated", manifest.ids, levels, [()] * len(levels))
    replace(manifest, name="rated").with_parts(labels=[labels]).save(tmp_path / "rated")
    men = write(tmp_path / "men.txt", *(f"business-man-{row}" for row in range(6)))
    groups = sets(
        x="level:S,profession:business",
        y=f"@{men}",
        a="stimulus:" + "|".join(STIMULI["objectifying"]),
        b=",".join(item for item in prompts.by_id if item.startswith("business")),
    )
    options = ("--ddof", "0", "--p", "sampled", "--samples", "999", "--seed", "4", "--json")
    row = only_row(eat("--manifest", tmp_path / "rated", *groups, *options, store=table))
    settings = Settings(ddof=0, p="sampled", samples=999, seed=4)
    is_result(row, expected(images, prompts, "business", settings))
    assert (row["p_is"], row["partitions"]) == ("sampled", 999)


def test_missing_items_are_named(eat, images):
    options = sets(
        x="gender:woman", y="gender:man,profession:science", a="business-man-0", b="business-man-1"
    )
    row = only_row(eat(*options, "--json", texts=None))
    vectors = images.by_id
    x = [values for item, values in vectors.items() if "woman" in item]
    y = [values for item, values in vectors.items() if item.startswith("science-man")]
    correct = associate(x, y, [vectors["business-man-0"]], [vectors["business-man-1"]])
    assert (row["x"], row["y"]) == (12, 6)
    is_result(row, correct)
    pair = "science-woman-0,science-woman-9"
    options = sets(x=pair, y="science-woman-1", a="science-man-0", b="science-man-1")
    result = eat(*options, "--skip-missing", "--json", texts=None)
    assert only_row(result)["x"] == 1
    assert "NOTE: given sets: no embedding for 1 of the 2 items of X" in result.stderr


def test_embeddings_of_two_models_are_refused(eat, prompts, tmp_path):
    recipe = replace(CLIP, backbone={**CLIP.backbone, "name": "other", "weights_sha256": "c" * 64})
    write_store(tmp_path / "other.zarr", of.Manifest.load(prompts.manifest), prompts.by_id, recipe)
    refused(eat("professions", texts=tmp_path / "other.zarr"), "abababababab", "cccccccccccc")
    narrow = {item: row[:5] for item, row in prompts.by_id.items()}
    table = write_table(tmp_path / "narrow.csv", narrow)
    groups = sets(x="science-woman-0", y="science-man-0", a="science-0-0", b="science-1-0")
    refused(eat(*groups, texts=table), "the embeddings of X have 8 numbers, but those of A have 5")


VEC = ("rose 1 0.5 ", "lily -2e-1 3", "ant 0 1")


def test_embeddings_are_read_from_files(tmp_path):
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


def test_concepts_of_a_bottleneck_or_bank_are_sets(eat, prompts, tmp_path):
    chance, names = np.random.default_rng(0), ["Look", "Facial expression"]
    X, Y = chance.normal(size=(60, 8)), chance.integers(0, 2, (60, 2))
    bank = ConceptBank(C=1.0).fit(X, Y, concept_names=names)
    backbone = {"name": "clip-vit-base-patch32", "weights_sha256": WEIGHTS}
    save_model(bank, tmp_path / "bank", {"features": {"backbone": backbone}})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        save_model(tree_on(bank).fit(X, Y[:, 0]), tmp_path / "model", {})
    for name, weights in (("bank", WEIGHTS), ("model", "")):
        opened = open_vectors(tmp_path / name)
        ids, rows = opened.read(names[::-1])
        assert ids == names[::-1]
        assert rows == close(bank.cavs_[[1, 0]])
        assert (list(opened.columns["id"]), opened.weights) == (names, weights)
    save_model(DummyClassifier(strategy="prior").fit(X, Y[:, 0]), tmp_path / "guess", {})
    with pytest.raises(BiasError, match="guess: the model has no concept directions"):
        open_vectors(tmp_path / "guess")
    a, b = "stimulus:person to kiss|person to undress", "stimulus:chemist|engineer"
    options = sets(x="kind:concept", a=a, b=b)
    rows = json.loads(eat(*options, "--json", store=tmp_path / "bank").stdout)["rows"]
    a = [prompts.by_id[f"objectifying-{position}-{row}"] for position in (3, 4) for row in (0, 1)]
    b = [prompts.by_id[f"science-{position}-{row}"] for position in (2, 5) for row in (0, 1)]
    for row, name, correct in zip(rows, names, associate_each(bank.cavs_, a, b), strict=True):
        assert (row["item"], row["x"], row["y"], row["partitions"]) == (name, 1, 0, 70)
        is_result(row, correct)
    words = " ".join(eat(*options, store=tmp_path / "bank").stdout.split())
    assert "given sets: Look 1 - 4 4" in words


def test_the_shipped_batteries_are_valid():
    """The paper's tables have thirty prompts per side, d, and whether p < .05."""
    people = ("person", "woman", "human", "human being", "individual", "adult")
    emotion, professions = read_battery("emotion"), read_battery("professions")
    for test in emotion.tests:
        name, intensity = test.name.split(", ")
        assert test.a == {"stimulus": tuple(f"{name} {entry}" for entry in people)}
        assert test.b == {"stimulus": people}
        groups = {"emotion": (name,), "intensity": (intensity,)}
        assert test.x == {**groups, "condition": ("non-objectified",)}
        assert test.y == {**groups, "condition": ("objectified",)}
    assert [test.name for test in professions.tests] == ["science", "medicine", "business"]
    assert {len(group["stimulus"]) * len(battery.templates) for battery in (emotion, professions)
            for test in battery.tests for group in (test.a, test.b)} == {30}  # fmt: skip
    assert {
        test.name: [(entry.d, entry.significant) for entry in test.published.values()]
        for test in (*emotion.tests, *professions.tests)
        if test.published
    } == {
        "angry, high": [(1.09, True), (1.26, True), (0.26, False), (1.37, True)],
        "business": [(1.03, True), (0.76, True), (0.68, True)],
    }
