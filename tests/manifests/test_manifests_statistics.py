"""The figures of a label set, against a count by pandas; and the picture of them."""

import json
import re

import pytest

import obygaze_features as of
from tests.kit.files import write


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


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_figure(manifest, tmp_path, obygaze, suffix):
    figure = tmp_path / f"figures/levels.{suffix}"
    for by_film in (False, True):
        # --figure is the option's old name.
        options = ["-o", figure, "--by-film", "--overwrite"] if by_film else ["--figure", figure]
        result = obygaze("manifests", "stats", manifest, *options)
        assert f"figure -> {figure}" in result.output, result.output
        start = {"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[suffix]
        assert figure.read_bytes().startswith(start)
        if suffix == "svg":
            text = figure.read_text()
            assert "Sure 33.3%, 2 clips" in text
            assert ("Sleepless in Seattle (1993)" in text) is by_film
            tips = re.findall(r"<title>([^<]+): ([0-9.]+)% of Sure</title>", text)
            assert tips or by_film
            labels = of.Manifest.load(manifest).labels()
            pairs = zip(labels.concepts, labels.levels, strict=True)
            sure = [concepts for concepts, level in pairs if level == "S"]
            for concept, rate in tips:
                share = sum(concept in names for names in sure) / len(sure)
                assert float(rate) == pytest.approx(100 * share, abs=0.05)


def test_titles_items_and_empty_label_sets(manifest, obygaze):
    output = obygaze("manifests", "stats", manifest, "--by-film").output
    assert "tt0108160  Sleepless in Seattle (1993)" in output
    item = obygaze("manifests", "show", manifest, "tt0108160-004").output
    assert "tt0108160_scene_4.mkv" in item
    assert "S Type of shot, Clothing" in item
    assert obygaze("manifests", "show", manifest, "nobody").exit_code == 1
    # A level that nothing has is a rate of zero, not a division by it.
    write(manifest / "labels/none.csv", "id,level")
    result = obygaze("manifests", "stats", manifest, "--labels", "none")
    assert "0 clips of 0 films" in result.output, result.output
