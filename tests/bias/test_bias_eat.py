"""``obygaze bias eat``: batteries, embeddings by id, and the command."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from obygaze_features.manifests import LabelSet

# An independent test compares these with their definition.
from obygaze_models.studies.bias.association import associate, associate_each

# The published numbers, of which a command shows one model's.
from obygaze_models.studies.bias.battery import read_battery
from tests.kit.clips import embed, write_battery
from tests.kit.files import csv_rows, refused, tips, write
from tests.kit.floats import close


@pytest.fixture
def eat(obygaze, images, prompts):
    def eat(*arguments, store=images.store, texts=prompts.store):
        return obygaze("bias", "eat", "--store", store, "--texts", texts, *arguments)

    return eat


@pytest.fixture
def printed(eat, tmp_path):
    """Return the rows of a battery of one test, given its sets."""

    def printed(*options, store, texts=None, **sets):
        battery = write_battery(tmp_path / "own.json", **sets)
        result = eat(battery, *options, "--json", store=store, texts=texts or store)
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)["rows"]

    return printed


def expected(images, prompts, job):
    women = images.rows(f"{job}-woman")
    men = images.rows(f"{job}-man")
    return associate(women, men, prompts.rows("objectifying"), prompts.rows(job))


def is_result(row, result):
    assert (row["d"], row["p"]) == close((result.d, result.p))


def test_a_battery_is_printed_tabulated_and_drawn(eat, images, prompts, tmp_path):
    table = tmp_path / "eat.csv"
    svg = tmp_path / "eat.svg"
    words = ("professions", "-o", table, "-o", svg)
    result = eat(*words, "--json")
    assert result.exit_code == 3, "medicine is left out"
    printed = json.loads(result.stdout)
    assert printed["published"] == "CLIP ViT-B/32"
    [left_out] = printed["left_out_tests"]
    assert left_out["left_out_test"] == "medicine"
    drawn = tips(svg)
    lines = csv_rows(table)
    for row, line, published in zip(printed["rows"], lines, [0.6, 1.03], strict=True):
        assert [row[name] for name in "xyab"] == [6, 6, 30, 30]
        assert (row["p_is"], row["partitions"]) == ("exact", 924)
        correct = expected(images, prompts, row["test"])
        for name in ("d", "statistic", "p", "low", "high"):
            assert row[name] == close(getattr(correct, name))
            assert float(line[name]) == row[name]
        assert float(line["published_d"]) == published
        shown = drawn[f"{row['test']}, here"].replace("−", "-")
        assert shown.startswith(f"{row['d']:.2f}")
    refused(eat(*words), "eat.csv already exists", "--overwrite")


def test_all_published_effect_sizes_are_shipped():
    """wolfe.csv has tables 1 and 2 as printed."""
    shipped = []
    for table, name in (("1", "emotion"), ("2", "professions")):
        for test in read_battery(name).tests:
            for model, value in test.published.items():
                names = (table, model.replace("/", ""), test.name.replace(",", ""))
                shipped.append((*names, value.d, "yes" if value.significant else "no"))
    printed = []
    for row in csv_rows(Path(__file__).with_name("wolfe.csv")):
        names = (row["table"], row["model"], row["test"])
        printed.append((*names, float(row["d"]), row["p_below_05"]))
    assert len(printed) == 81
    assert sorted(shipped) == sorted(printed)


def test_published_numbers_need_the_published_weights(eat, images, tmp_path):
    """OpenCLIP's published model is of LAION-400M, and the one that obygaze loads of LAION-2B."""
    other = embed(tmp_path, images.manifest, name="openclip-vit-base-patch32")
    printed = json.loads(eat("professions", "--json", store=other.store).stdout)
    assert printed["published"] is None
    assert "published_d" not in printed["rows"][0]


def write_table(path, vectors):
    pd.DataFrame.from_dict(vectors, orient="index").to_csv(path, index_label="id")
    return path


def test_sets_are_named_by_columns_ids_or_levels(printed, images, prompts, tmp_path):
    """Tables of embeddings have no columns, and a manifest may exceed its store."""
    table = write_table(tmp_path / "images.csv", images.by_id)
    ids = images.manifest.ids
    levels = ["S" if "woman" in item else "EN" for item in ids]
    labels = LabelSet("rated", ids, levels, [()] * len(levels))
    images.manifest.with_parts(labels).save(tmp_path / "rated")
    [row] = printed(
        "--manifest",
        tmp_path / "rated",
        store=table,
        texts=prompts.store,
        x={"level": "S", "profession": "business"},
        y=[f"business-man-{number}" for number in range(6)],
        a={"set": "objectifying"},
        b=[item for item in prompts.by_id if item.startswith("business")],
    )
    is_result(row, expected(images, prompts, "business"))


def test_missing_items_are_counted_and_left_out(printed, images):
    a = "business-man-0"
    b = "business-man-1"
    women = [f"science-woman-{number}" for number in range(8)]
    men = {"gender": "man", "profession": ["science"]}
    [row] = printed("--skip-missing", store=images.store, x=women, y=men, a=[a], b=[b])
    assert (row["x"], row["y"], row["missing"]) == (6, 6, 2)
    sides = images.rows("science-woman"), images.rows("science-man")
    is_result(row, associate(*sides, images.rows(a), images.rows(b)))


def test_embeddings_of_two_models_are_refused(eat, prompts, tmp_path):
    other = embed(tmp_path, prompts.manifest, weights_sha256="c" * 64)
    refused(eat("professions", texts=other.store), "professions.zarr", "different weights")


VEC = ("rose 1 0.5 ", "lily 0 1", "ant 0.5 1", "wasp 1 -2e-1")
CSV = ("text,0,1", '"a rose, red",1,0.5', "lily,0,1", "ant,0.5,1", "wasp,1,-0.2")
FILES = [
    ("words.vec", VEC, "rose"),
    ("word2vec.vec", ("4 2", *VEC), "rose"),
    ("prompts.csv", CSV, "a rose, red"),
]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
@pytest.mark.parametrize(("name", "lines", "rose"), FILES)
def test_embeddings_are_read_from_files(printed, tmp_path, name, lines, rose, encoding):
    path = write(tmp_path / name, *lines, encoding=encoding)
    [row] = printed(store=path, x=[rose], y=["lily"], a=["ant"], b=["wasp"])
    is_result(row, associate([[1, 0.5]], [[0, 1]], [[0.5, 1]], [[1, -0.2]]))


def test_items_of_x_are_tested_alone_without_y(printed, prompts, tmp_path):
    names = ["Look", "Facial expression"]
    directions = np.random.default_rng(0).normal(size=(2, 8))
    concepts = dict(zip(names, directions, strict=True))
    store = write_table(tmp_path / "concepts.csv", concepts)
    rows = printed(
        store=store,
        texts=prompts.store,
        x=names,
        a={"set": "science"},
        b={"set": "medicine"},
    )
    tests = associate_each(directions, prompts.rows("science"), prompts.rows("medicine"))
    for row, name, correct in zip(rows, names, tests, strict=True):
        assert (row["item"], row["x"], row["y"]) == (name, 1, 0)
        is_result(row, correct)
