"""The authors' annotation file: its quirks, its three rules, the paper's own figures."""

import ast
import csv

import pytest

from obygaze_features.manifests import Manifest
from obygaze_features.manifests.statistics import statistics


def test_quirks_are_read_and_nothing_is_lost(source):
    manifest = Manifest.from_obygaze12(source)
    assert manifest.ids == [
        "tt0108160-001", "tt0108160-002", "tt0108160-003", "tt0108160-004", "tt0108160-005",
        "tt0110912-001",
    ]  # fmt: skip
    assert manifest["tt0108160-004"].media == "tt0108160_scene_4.mkv"
    assert manifest["tt0108160-005"].media == ""
    assert manifest.items.extra["graph_number"] == ["1", "2", "3", "4", "5", "1"]
    raw = manifest.labels("raw")
    assert raw.extra["raw_label"][3] == "Sure"
    assert raw.extra["raw_concepts"][2] == "['Activities', ' Exp of  emotion']"
    assert raw.ratio == ["1.00"] * 6


def test_rules(source):
    manifest = Manifest.from_obygaze12(source)
    assert manifest.labels().name == "paper"
    assert manifest.labels("paper").levels == ["EN", "EN", "NS", "S", "HN", "S"]
    assert manifest.labels("released").level_of == {
        "tt0108160-001": "EN",
        "tt0108160-003": "NS",
        "tt0108160-004": "S",
        "tt0108160-005": "HN",
        "tt0110912-001": "S",
    }
    assert manifest.labels("raw").levels == ["EN", "HN", "NS", "S", "HN", "S"]


def test_concepts_get_the_papers_names(source):
    labels = Manifest.from_obygaze12(source).labels("raw")
    assert labels.concepts_of["tt0108160-003"] == ("Expression of emotion", "Activity")
    assert labels.concepts_of["tt0108160-004"] == ("Type of shot", "Clothing", "Speech")


def test_default_rule_is_kept(source, tmp_path):
    Manifest.from_obygaze12(source, rule="released").save(tmp_path / "m")
    assert Manifest.load(tmp_path / "m").labels().name == "released"


@pytest.mark.parametrize(
    ("rule", "counts"),
    [
        ("paper", [1003, 309, 292, 310]),
        ("released", [453, 309, 292, 310]),
        ("raw", [453, 711, 397, 353]),
    ],
)
def test_the_papers_figures(obygaze12, rule, counts):
    result = statistics(obygaze12, rule).all
    assert [result.levels[code] for code in ("EN", "HN", "NS", "S")] == counts


def test_the_papers_shares_and_concepts(obygaze12):
    result = statistics(obygaze12).all
    shares = [f"{result.share(code):.1%}" for code in ("EN", "HN", "NS", "S")]
    assert shares == ["52.4%", "16.1%", "15.3%", "16.2%"]
    means = [f"{result.concepts_per_item(code):.4f}" for code in ("HN", "NS", "S")]
    assert means == ["1.2557", "1.7089", "2.6032"]


def test_the_released_files_hold_fewer(obygaze12):
    result = statistics(obygaze12, "released", split="02_EN_HN_S").all
    assert [result.levels[code] for code in ("EN", "HN", "NS", "S")] == [436, 304, 0, 308]


def test_against_a_plain_reading(obygaze12, authors):
    """Python's own literal parser and csv module as the oracle, row by row."""
    names = {
        "Type of plan": "Type of shot", "Clothes": "Clothing", "Activities": "Activity",
        "Exp of emotion": "Expression of emotion",
    }  # fmt: skip
    path = authors / "obygaze12" / "ObyGaze12_thresh_02.csv"
    with path.open(newline="") as file:
        rows = [row for row in csv.DictReader(file, delimiter=";") if row["id"]]
    assert obygaze12.ids == [row["id"] for row in rows]
    raw = obygaze12.labels("raw")
    for plain, concepts in zip(rows, raw.concepts, strict=True):
        parsed = {" ".join(text.split()) for text in ast.literal_eval(plain["concepts"])} - {""}
        assert set(concepts) == {names.get(name, name) for name in parsed}
    assert sum(not name for name in obygaze12.items.media) == 75
