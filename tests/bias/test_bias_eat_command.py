"""``obygaze bias eat`` on stores, files and concept directions."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest

from obygaze_features.manifests import LabelSet, Manifest
from obygaze_models.bias.association import Settings, associate, associate_each
from obygaze_models.estimators.concepts import ConceptBank
from obygaze_models.persistence import save_model
from tests.figures.drawn import texts, tips
from tests.kit.embeddings import CLIP, STIMULI, WEIGHTS
from tests.world import write_store


def sets(**of):
    """As options of the command."""
    return [word for name, item in of.items() for word in ("--sets", f"{name}={item}")]


def expected(images, prompts, job, settings=None):
    """By hand, from the embeddings as they were made."""
    sides = (images.rows(f"{job}-{gender}") for gender in ("woman", "man"))
    words = prompts.rows("objectifying"), prompts.rows(job)
    return associate(*sides, *words, settings or Settings())


def test_a_battery_with_a_test_that_cannot_be_run(obygaze, images, prompts):
    result = obygaze(
        "bias", "eat", "professions", "--store", images.store, "--texts", prompts.store
    )
    assert result.exit_code == 3
    assert "NOTE: medicine is left out: no item has the profession 'medicine'" in result.stderr
    header, _, *rows = result.stdout.splitlines()
    assert header.split() == [
        *("professions", "X", "Y", "A", "B", "d", "95%", "T", "p", "CLIP", "ViT-B/32")
    ]
    for job, line in zip(("science", "business"), rows, strict=False):
        correct = expected(images, prompts, job)
        star = "*" if correct.p < 0.05 else ""
        assert line.split()[:6] == [job, "6", "6", "12", "12", f"{correct.d:+.2f}{star}"]
        assert f"{correct.low:+.2f} to {correct.high:+.2f}  {correct.statistic:+.4f}" in line
        assert f"{correct.p:.4f}" in line
    assert rows[1].endswith("+1.03*")
    assert "p over all partitions (924)" in rows[2]
    assert rows[-1] == "next: add -o eat.csv -o eat.svg to keep the table and its figure"


def test_json_and_tables_and_a_figure(obygaze, images, prompts, tmp_path):
    files = [tmp_path / f"eat.{suffix}" for suffix in ("csv", "json", "svg")]
    outputs = [word for path in files for word in ("-o", path)]
    arguments = ["bias", "eat", "professions", "--store", images.store, "--texts", prompts.store]
    result = obygaze(*arguments, *outputs, "--json", "--published", "CLIP ViT-L/14")
    assert result.exit_code == 3
    printed = json.loads(result.stdout)
    assert printed == json.loads(files[1].read_text())
    assert (printed["battery"], printed["model"]) == ("professions", "CLIP ViT-L/14")
    assert list(printed["left_out"]) == ["medicine"]
    with files[0].open(newline="") as file:
        table = list(csv.DictReader(file))
    for job, row, line in zip(("science", "business"), printed["rows"], table, strict=True):
        correct = expected(images, prompts, job)
        assert (row["test"], row["item"]) == (job, None)
        assert (row["p_is"], row["partitions"]) == ("exact", 924)
        assert row["significant"] == (correct.p < 0.05)
        for key in ("d", "statistic", "p", "low", "high"):
            assert row[key] == pytest.approx(getattr(correct, key), abs=1e-12)
            assert float(line[key]) == row[key]
        assert row["published_d"] == (0.68 if job == "business" else None)
        assert line["published_d"] == ("0.68" if job == "business" else "")
    drawn = tips(files[2])
    number = f"{printed['rows'][1]['d']:+.2f}".replace("-", "−")
    assert drawn["business, here"].startswith(number)
    assert drawn["business, published"] == "+0.68"
    words = texts(files[2])
    for row in printed["rows"]:
        star = "*" if row["p"] < 0.05 else ""
        assert f"{row['d']:+.2f}{star}".replace("-", "−") in words
        assert f"{row['p']:.4f}" in words
    assert "+0.68*" in words
    assert "the interval from draws of items with replacement" in " ".join(words)
    again = obygaze(*arguments, *outputs)
    assert again.exit_code == 1
    assert "eat.csv exists already; choose another name or add --overwrite" in again.stderr
    assert obygaze(*arguments, *outputs, "--overwrite").exit_code == 3


def test_sets_by_columns_by_ids_and_from_a_file(obygaze, images, prompts, tmp_path):
    (tmp_path / "men.txt").write_text("".join(f"science-man-{row}\n" for row in range(6)))
    result = obygaze(
        *("bias", "eat", "--store", images.store, "--texts", prompts.store, "--json"),
        *sets(
            x="gender:woman,profession:science",
            y=f"@{tmp_path / 'men.txt'}",
            a="stimulus:" + "|".join(STIMULI["objectifying"]),
            b=",".join(item for item in prompts.of if item.startswith("science")),
        ),
        *("--ddof", "0", "--p", "sampled", "--samples", "999", "--seed", "4"),
    )
    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.stdout)["rows"]
    correct = expected(
        images, prompts, "science", Settings(ddof=0, p="sampled", samples=999, seed=4)
    )
    assert (row["d"], row["p"]) == pytest.approx((correct.d, correct.p))
    assert (row["p_is"], row["partitions"]) == ("sampled", 999)


def test_words_of_a_vec_file_by_a_battery_of_ones_own(obygaze, tmp_path):
    chance = np.random.default_rng(8)
    words = {
        item: chance.normal(size=20) for item in ("rose", "lily", "ant", "wasp", "love", "war")
    }
    lines = [" ".join([word, *map(repr, row.tolist())]) for word, row in words.items()]
    (tmp_path / "words.vec").write_text("\n".join(lines) + "\n")
    groups = {"x": ["rose", "lily"], "y": ["ant", "wasp"], "a": ["love"], "b": ["war"]}
    test = {"name": "weat", **groups}
    battery = {"format": "obygaze-battery", "format_version": 1, "tests": [test]}
    (tmp_path / "weat.json").write_text(json.dumps(battery))
    correct = associate(
        *([words[item] for item in test[name]] for name in "xyab"), Settings(p="normal")
    )
    result = obygaze(
        *("bias", "eat", tmp_path / "weat.json", "--store", tmp_path / "words.vec"),
        *("--p", "normal", "--json"),
    )
    (row,) = json.loads(result.stdout)["rows"]
    assert (result.exit_code, row["p_is"], row["partitions"]) == (0, "normal", None)
    assert (row["d"], row["p"]) == pytest.approx((correct.d, correct.p))
    table = obygaze(
        "bias", "eat", tmp_path / "weat.json", "--store", tmp_path / "words.vec", "--p", "normal"
    )
    assert "p from a normal distribution" in table.stdout


def test_each_concept_of_a_bank_against_prompts(obygaze, prompts, tmp_path):
    chance = np.random.default_rng(0)
    bank = ConceptBank("mean-difference")
    bank.fit(
        chance.normal(size=(60, 8)), chance.integers(0, 2, (60, 2)), concept_names=["Look", "Body"]
    )
    backbone = {"name": "clip-vit-base-patch32", "weights_sha256": WEIGHTS}
    save_model(bank, tmp_path / "bank", {"features": {"backbone": backbone}})
    options = sets(
        x="kind:concept",
        a="stimulus:person to kiss|person to undress",
        b="stimulus:chemist|engineer",
    )
    result = obygaze(
        *("bias", "eat", "--store", tmp_path / "bank", "--texts", prompts.store, *options, "--json")
    )
    assert result.exit_code == 0, result.output
    a = [prompts.of[f"objectifying-{position}-{row}"] for position in (3, 4) for row in (0, 1)]
    b = [prompts.of[f"science-{position}-{row}"] for position in (2, 5) for row in (0, 1)]
    all_correct = associate_each(bank.cavs_, a, b)
    rows = json.loads(result.stdout)["rows"]
    for row, name, correct in zip(rows, bank.names_, all_correct, strict=True):
        assert (row["item"], row["x"], row["y"], row["partitions"]) == (name, 1, 0, 70)
        assert (row["d"], row["p"]) == pytest.approx((correct.d, correct.p))
    text = obygaze("bias", "eat", "--store", tmp_path / "bank", "--texts", prompts.store, *options)
    assert "given sets: Look  1  -  4  4" in text.stdout


def test_columns_and_levels_of_a_manifest(obygaze, images, prompts, tmp_path):
    """A table of embeddings knows no columns; and a manifest may know more than its store."""
    with (tmp_path / "images.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", *range(8)])
        writer.writerows([item, *row.tolist()] for item, row in images.of.items())
    manifest = Manifest.load(images.manifest)
    levels = ["S" if "woman" in item else "EN" for item in manifest.ids]
    rated = replace(manifest, name="rated").with_parts(
        labels=[LabelSet("rated", manifest.ids, levels, [()] * len(levels))]
    )
    rated.save(tmp_path / "rated")
    options = sets(
        x="level:S,profession:business",
        y="level:EN,profession:business",
        a="template:{},text:person to kiss",
        b="text:ceo|manager",
    )
    result = obygaze(
        *("bias", "eat", "--store", tmp_path / "images.csv", "--texts", prompts.store, "--json"),
        *("--manifest", tmp_path / "rated", *options),
    )
    assert result.exit_code == 0, result.output
    (row,) = json.loads(result.stdout)["rows"]
    sides = (images.rows(f"business-{gender}") for gender in ("woman", "man"))
    words = [[prompts.of["objectifying-3-0"]], [prompts.of[f"business-{n}-0"] for n in (2, 4)]]
    assert row["d"] == pytest.approx(associate(*sides, *words).d)


def test_a_pooled_array(obygaze, images, tmp_path):
    options = sets(
        x="gender:woman", y="gender:man,profession:science", a="business-man-0", b="business-man-1"
    )
    frames = ["--array", "frames", "--pooling", "mean"]
    result = obygaze("bias", "eat", "--store", images.store, *options, *frames, "--json")
    (row,) = json.loads(result.stdout)["rows"]
    of = {item: values.astype(np.float16) for item, values in images.of.items()}
    x = [values for item, values in of.items() if "woman" in item]
    y = [values for item, values in of.items() if item.startswith("science-man")]
    correct = associate(x, y, [of["business-man-0"]], [of["business-man-1"]])
    assert (row["x"], row["y"]) == (12, 6)
    assert (row["d"], row["p"]) == pytest.approx((correct.d, correct.p))


W, M = "science-woman-", "science-man-"


def test_missing_items_are_done_without_when_asked(obygaze, images):
    options = sets(x=f"{W}0,{W}9", y=W + "1", a=M + "0", b=M + "1")
    result = obygaze("bias", "eat", "--store", images.store, *options, "--skip-missing", "--json")
    assert result.exit_code == 0
    assert [row["x"] for row in json.loads(result.stdout)["rows"]] == [1]
    assert "NOTE: given sets: 1 of the 2 items of X have no embedding" in result.stderr


def test_embeddings_of_two_models_are_refused(obygaze, images, prompts, tmp_path):
    other = replace(CLIP, backbone={**CLIP.backbone, "name": "other", "weights_sha256": "c" * 64})
    write_store(tmp_path / "other.zarr", Manifest.load(prompts.manifest), prompts.of, other)
    result = obygaze(
        "bias", "eat", "professions", "--store", images.store, "--texts", tmp_path / "other.zarr"
    )
    assert result.exit_code == 1
    assert all(fact in result.stderr for fact in ("abababababab", "cccccccccccc"))
    narrow = {item: row[:5] for item, row in prompts.of.items()}
    with (tmp_path / "narrow.csv").open("w", newline="") as file:
        rows = [[item, *row] for item, row in narrow.items()]
        csv.writer(file).writerows([["id", *range(5)], *rows])
    result = obygaze(
        *("bias", "eat", "--store", images.store, "--texts", tmp_path / "narrow.csv"),
        *sets(x=W + "0", y=M + "0", a="science-0-0", b="science-1-0"),
    )
    assert result.exit_code == 1
    assert "X have 8 numbers, those of A 5" in result.stderr
