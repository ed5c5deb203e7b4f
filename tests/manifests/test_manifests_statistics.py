"""The figures of a label set, against a count by pandas; and the picture of them."""

import json
import re

import pytest

from obygaze_features.manifests import Manifest


def test_against_pandas(manifest, obygaze):
    pandas = pytest.importorskip("pandas")
    result = json.loads(obygaze("manifests", "stats", manifest, "--labels", "raw", "--json").stdout)
    table = pandas.read_csv(manifest / "labels" / "raw.csv", keep_default_na=False)
    table["concepts"] = [c.split("|") if c else [] for c in table["concepts"]]
    assert result["items"] == len(table)
    for level, rows in table.groupby("level"):
        seen = result["levels"][level]
        assert seen["count"] == len(rows)
        assert seen["share"] == pytest.approx(len(rows) / len(table))
        assert seen["concepts_per_item"] == pytest.approx(rows["concepts"].map(len).mean())
        exploded = rows["concepts"].explode().dropna().value_counts()
        for name, rate in seen["concept_rates"].items():
            assert rate == pytest.approx(exploded.get(name, 0) / len(rows))
    by_film = table.assign(film=table["id"].str.split("-").str[0]).groupby("film")
    assert {film: seen["items"] for film, seen in result["films"].items()} == dict(by_film.size())


@pytest.mark.parametrize("by_film", [False, True])
@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_figure(manifest, tmp_path, obygaze, suffix, by_film):
    pytest.importorskip("matplotlib")
    figure = tmp_path / "figures" / f"levels.{suffix}"
    arguments = ["--by-film"] if by_film else []
    option = "-o" if by_film else "--figure"  # its old name
    result = obygaze("manifests", "stats", manifest, option, figure, *arguments)
    assert result.exit_code == 0, result.output
    assert f"figure -> {figure}" in result.output
    start = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[suffix]
    assert figure.read_bytes().startswith(start)
    if suffix == "svg":
        text = figure.read_text()
        for words in ("Share of each level", "Sure 33.3%, 2 clips"):
            assert words in text
        assert ("Sleepless in Seattle (1993)" in text) is by_film


def test_rates_in_the_figure_are_those_of_a_count(manifest, tmp_path, obygaze):
    obygaze("manifests", "stats", manifest, "-o", tmp_path / "f.svg")
    tips = re.findall(
        r"<title>([^<]+): ([0-9.]+)% of Sure</title>", (tmp_path / "f.svg").read_text()
    )
    labels = Manifest.load(manifest).labels()
    sure = [c for c, level in zip(labels.concepts, labels.levels, strict=True) if level == "S"]
    assert tips
    for concept, rate in tips:
        share = sum(concept in names for names in sure) / len(sure)
        assert float(rate) == pytest.approx(100 * share, abs=0.05)


def test_films_have_their_titles(manifest, obygaze):
    output = obygaze("manifests", "stats", manifest, "--by-film").output
    assert "tt0108160  Sleepless in Seattle (1993)" in output


def test_show(manifest, obygaze):
    output = obygaze("manifests", "show", manifest).output
    assert "6 (clip)" in output
    assert "paper (default), raw, released" in output
    item = obygaze("manifests", "show", manifest, "tt0108160-004").output
    assert "tt0108160_scene_4.mkv" in item
    assert "S Type of shot, Clothing" in item
    assert obygaze("manifests", "show", manifest, "nobody").exit_code == 1


def test_an_empty_label_set(manifest, obygaze):
    """A level that nothing has is a rate of zero, not a division by it."""
    (manifest / "labels" / "none.csv").write_text("id,level\n")
    result = obygaze("manifests", "stats", manifest, "--labels", "none")
    assert result.exit_code == 0
    assert "0 clips of 0 films" in result.output


def test_select(manifest):
    loaded = Manifest.load(manifest)
    assert loaded.select(films=["tt0110912"]).ids == ["tt0110912-001"]
    assert loaded.select(levels=["Sure"]).ids == ["tt0108160-004", "tt0110912-001"]
    assert loaded.select(levels=["S"], concepts=["Clothes"]).ids == ["tt0108160-004"]
    assert loaded.select(concepts=["Speech"], labels="raw").ids == [
        "tt0108160-002",
        "tt0108160-004",
    ]
    chosen = loaded.select(ids=["tt0110912-001", "tt0108160-003"])
    assert chosen.ids == ["tt0108160-003", "tt0110912-001"]  # in the manifest's order
    assert chosen.labels().level_of == {"tt0108160-003": "NS", "tt0110912-001": "S"}
    assert chosen.digest != loaded.digest
