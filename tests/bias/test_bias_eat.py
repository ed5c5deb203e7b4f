"""``obygaze bias eat``: batteries, embeddings by id, and the command."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import obygaze_features as of
from obygaze_features.errors import UsageError
from obygaze_features.manifests import LabelSet
from obygaze_models.studies.bias.association import Settings, associate, associate_each
from obygaze_models.studies.bias.battery import read_battery, run_battery
from obygaze_models.studies.bias.inputs import open_vectors
from tests.kit.clips import CLIP, STIMULI, write_battery
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
    table, svg = tmp_path / "eat.csv", tmp_path / "eat.svg"
    outputs = ["-o", table, "-o", svg]
    result = eat("professions", *outputs, "--json", code=3)
    printed = json.loads(result.stdout)
    assert (printed["battery"], printed["published"]) == ("professions", "CLIP ViT-B/32")
    [left_out] = printed["left_out_tests"]
    assert left_out["left_out_test"] == "medicine"
    assert left_out["reason"].startswith("no selected item has the profession 'medicine'")
    for row, line, published in zip(printed["rows"], csv_rows(table), ["0.6", "1.03"], strict=True):
        correct = expected(images, prompts, row["test"])
        assert [row[key] for key in ("x", "y", "a", "b", "missing")] == [6, 6, 12, 12, 0]
        assert (row["p_is"], row["partitions"]) == ("exact", 924)
        for key in ("d", "statistic", "p", "low", "high"):
            assert row[key] == close(getattr(correct, key))
            assert float(line[key]) == row[key]
        assert line["published_d"] == published
    drawn = tips(svg)
    assert drawn["business, here"].startswith(f"{row['d']:.2f}".replace("-", "−"))
    assert {"science", "business", "published"} <= set(texts(svg))
    text = eat("professions", code=3).stdout
    assert [line.split()[0] for line in text.splitlines() if " 924 " in line] == [
        "science", "business",
    ]  # fmt: skip
    refused(eat("professions", *outputs), "eat.csv already exists", "--overwrite")


def test_another_models_numbers_and_settings_are_python(images, prompts):
    battery = read_battery("professions")
    sources = open_vectors(images.store), open_vectors(prompts.store)
    settings = Settings(ddof=0, draws=0)
    result = run_battery(battery, *sources, settings=settings, model="CLIP ViT-L/14")
    business = result.rows[1]
    is_result(business, expected(images, prompts, "business", settings))
    assert business["low"] is None
    assert (business["published_d"], business["published_significant"]) == (0.68, True)
    assert (result.rows[0]["published_d"], result.rows[0]["published_significant"]) == (
        -0.07,
        False,
    )
    with pytest.raises(UsageError, match="unknown published model 'CLIP ViT-L'; did you mean"):
        run_battery(battery, *sources, model="CLIP ViT-L")


def test_all_published_effect_sizes_are_shipped():
    """wolfe.csv has tables 1 and 2 as printed."""
    shipped = {}
    for table, name in (("1", "emotion"), ("2", "professions")):
        battery = read_battery(name)
        for test in battery.tests:
            assert test.published.keys() == battery.models.keys()
            for model, value in test.published.items():
                key = table, model.replace("/", ""), test.name.replace(",", "")
                shipped[key] = value.d, value.significant
    printed = {}
    for row in csv_rows(Path(__file__).with_name("wolfe.csv")):
        key = row["table"], row["model"], row["test"]
        printed[key] = float(row["d"]), row["p_below_05"] == "yes"
    assert len(printed) == 81
    assert shipped == printed


def test_published_numbers_need_the_published_weights(eat, images, tmp_path):
    """OpenCLIP's published model is of LAION-400M, and the one that obygaze loads of LAION-2B."""
    backbone = {**CLIP.backbone, "name": "openclip-vit-base-patch32"}
    manifest, store = of.Manifest.load(images.manifest), tmp_path / "openclip.zarr"
    write_store(store, manifest, images.by_id, replace(CLIP, backbone=backbone))
    printed = json.loads(eat("professions", "--json", store=store, code=3).stdout)
    assert printed["published"] is None
    assert not [row for row in printed["rows"] if "published_d" in row]


def write_table(path, vectors):
    pd.DataFrame.from_dict(vectors, orient="index").to_csv(path, index_label="id")
    return path


def test_sets_are_named_by_columns_ids_or_levels(eat, images, prompts, tmp_path):
    """Tables of embeddings have no columns, and a manifest may exceed its store."""
    table = write_table(tmp_path / "images.csv", images.by_id)
    manifest = of.Manifest.load(images.manifest)
    levels = ["S" if "woman" in item else "EN" for item in manifest.ids]
    labels = LabelSet("rated", manifest.ids, levels, [()] * len(levels))
    replace(manifest, name="rated").with_parts(labels).save(tmp_path / "rated")
    battery = write_battery(
        tmp_path / "own.json",
        x={"level": "S", "profession": "business"},
        y=[f"business-man-{row}" for row in range(6)],
        a={"stimulus": STIMULI["objectifying"]},
        b=[item for item in prompts.by_id if item.startswith("business")],
    )
    row = only_row(eat(battery, "--manifest", tmp_path / "rated", "--json", store=table))
    is_result(row, expected(images, prompts, "business"))


def test_missing_items_are_counted(eat, images, tmp_path):
    battery = write_battery(
        tmp_path / "own.json",
        x={"gender": "woman"},
        y={"gender": "man", "profession": ["science"]},
        a=["business-man-0"],
        b=["business-man-1"],
    )
    row = only_row(eat(battery, "--json", texts=None))
    vectors = images.by_id
    x = [values for item, values in vectors.items() if "woman" in item]
    y = [values for item, values in vectors.items() if item.startswith("science-man")]
    correct = associate(x, y, [vectors["business-man-0"]], [vectors["business-man-1"]])
    assert (row["x"], row["y"], row["missing"]) == (12, 6, 0)
    is_result(row, correct)
    battery = write_battery(
        battery,
        x=["science-woman-0", "science-woman-9"],
        y=["science-woman-1"],
        a=["science-man-0"],
        b=["science-man-1"],
    )
    row = only_row(eat(battery, "--skip-missing", "--json", texts=None))
    assert (row["x"], row["missing"]) == (1, 1)


def test_embeddings_of_two_models_are_refused(eat, prompts, tmp_path):
    recipe = replace(CLIP, backbone={**CLIP.backbone, "name": "other", "weights_sha256": "c" * 64})
    write_store(tmp_path / "other.zarr", of.Manifest.load(prompts.manifest), prompts.by_id, recipe)
    refused(eat("professions", texts=tmp_path / "other.zarr"), "other.zarr", "different weights")
    narrow = {item: row[:5] for item, row in prompts.by_id.items()}
    table = write_table(tmp_path / "narrow.csv", narrow)
    ids = {"x": ["science-woman-0"], "y": ["science-man-0"], "a": ["science-0-0"]}
    battery = write_battery(tmp_path / "own.json", **ids, b=["science-1-0"])
    refused(eat(battery, texts=table), "'X': 8", "'A': 5", "one model")


VEC = ("rose 1 0.5 ", "lily -2e-1 3", "ant 0 1")


def test_embeddings_are_read_from_files(tmp_path):
    expected = [[0, 1], [1, 0.5]]
    for lines in (VEC, ("3 2", *VEC)):  # without and with word2vec's header
        for encoding in ("utf-8", "utf-8-sig"):
            path = write(tmp_path / "words.vec", *lines, encoding=encoding)
            rows = open_vectors(path).read(["ant", "tulip", "rose"])
            assert [rows[word].tolist() for word in ("ant", "rose")] == expected
            assert "tulip" not in rows
    lines = ("text,0,1", '"a doctor, smiling",1,2', "nurse,3,-4")  # prompts for names
    path = write(tmp_path / "prompts.csv", *lines, encoding="utf-8-sig")
    rows = open_vectors(path).read(["nurse", "a doctor, smiling"])
    assert [row.tolist() for row in rows.values()] == [[1, 2], [3, -4]]
    frame = pd.DataFrame(np.eye(3), index=["one", "two", "three"])  # as pandas writes it
    frame.to_csv(tmp_path / "frame.csv")
    rows = open_vectors(tmp_path / "frame.csv").read(["three", "one"])
    assert {name: row.tolist() for name, row in rows.items()} == {
        "one": [1, 0, 0],
        "three": [0, 0, 1],
    }


def test_items_of_x_are_tested_alone_without_y(eat, prompts, tmp_path):
    names = ["Look", "Facial expression"]
    directions = np.random.default_rng(0).normal(size=(2, 8))
    table = write_table(tmp_path / "concepts.csv", dict(zip(names, directions, strict=True)))
    battery = write_battery(
        tmp_path / "own.json",
        x=names,
        a={"stimulus": ["person to kiss", "person to undress"]},
        b={"stimulus": ["chemist", "engineer"]},
    )
    rows = json.loads(eat(battery, "--json", store=table).stdout)["rows"]
    a = [prompts.by_id[f"objectifying-{position}-{row}"] for position in (3, 4) for row in (0, 1)]
    b = [prompts.by_id[f"science-{position}-{row}"] for position in (2, 5) for row in (0, 1)]
    for row, name, correct in zip(rows, names, associate_each(directions, a, b), strict=True):
        assert (row["item"], row["x"], row["y"], row["partitions"]) == (name, 1, 0, 70)
        is_result(row, correct)
