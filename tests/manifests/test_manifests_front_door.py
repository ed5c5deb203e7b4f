"""Manifests in Python, with paths as `str` or `Path`."""

from pathlib import Path

import pytest

import obygaze_features as of
from obygaze_features.errors import ManifestError, OutputExists, UnknownItem, UsageError
from obygaze_features.items.media import locate
from obygaze_features.manifests import LabelSet
from obygaze_features.manifests.manifest import check
from tests.kit.files import touch, write

ROWS = [
    f"c{n},f{n // 4},f{n // 4}/c{n}.mp4,{level},{'Body' if level == 'S' else ''}"
    for n, level in enumerate(["EN", "EN", "HN", "S"] * 2)
]


@pytest.fixture
def table(tmp_path):
    return write(tmp_path / "clips.csv", "id,film,video,level,concepts", *ROWS)


@pytest.mark.parametrize("kind", [str, Path])
def test_a_table_becomes_a_manifest_with_a_split(table, tmp_path, kind):
    manifest = of.Manifest.from_csv(kind(table), columns={"level": "level"})
    manifest.add(of.stratified(manifest, folds=2))
    manifest.save(kind(tmp_path / "m"))
    loaded = of.Manifest.load(kind(tmp_path / "m"))
    assert (loaded.digest, check(tmp_path / "m")) == (manifest.digest, [])
    assert loaded.split("leak-free").sizes == [4, 4]
    assert repr(loaded.labels()).startswith("LabelSet(name='annotations'")
    assert max(len(repr(part)) for part in (loaded, loaded.labels())) < 300
    assert repr(loaded.items) == "Items(c0, c1, c2 and 5 more)"
    located = locate(loaded, touch(tmp_path / "films", "f0/c0.mkv"))
    assert (list(located.found), len(located.missing)) == (["c0"], 7)
    loaded.add(of.leave_film_out(loaded))
    assert of.Manifest.load(tmp_path / "m").split("leave-film-out").sizes == [4, 4]
    with pytest.raises(OutputExists, match="leave-film-out"):
        loaded.add(of.leave_film_out(loaded))


def test_invalid_parts_are_refused(table):
    manifest = of.Manifest.from_csv(table)
    for level, concept, fact in [
        ("sure", "Body", "has 'sure', which is no level"),
        ("S", "Nonsense", "has 'Nonsense', which is no"),
    ]:
        labels = LabelSet("mine", ["c0"], [level], [(concept,)])
        for add in (lambda of_it: manifest.with_parts(of_it), manifest.add):
            with pytest.raises(ManifestError, match=fact):
                add(labels)
    manifest.add(of.stratified(manifest, folds=2))
    with pytest.raises(UsageError, match="leak-free"):
        manifest.add(of.stratified(manifest, folds=2, seed=1))


def test_items_are_selected(released, manifest):
    small = of.Manifest.load(manifest)
    assert small.select(levels=["Sure"]).ids == ["tt0108160-004", "tt0110912-001"]
    assert small.select(levels=["S"], concepts=["Clothes"]).ids == ["tt0108160-004"]
    chosen = small.select(ids=["tt0110912-001", "tt0108160-003"])
    assert chosen.ids == ["tt0108160-003", "tt0110912-001"]  # in the manifest's order
    assert chosen.labels().level_of == {"tt0108160-003": "NS", "tt0110912-001": "S"}
    assert chosen.digest != small.digest
    for key, value in {"levels": "EN", "films": "tt0108160", "concepts": "Look"}.items():
        assert released.select(**{key: value}).ids == released.select(**{key: [value]}).ids != []
    for selection, error, fact in [
        ({"films": "TT0108160"}, UsageError, "'TT0108160'; did you mean tt0108160"),
        ({"ids": "tt0108160-03"}, UnknownItem, "did you mean tt0108160-003"),
    ]:
        with pytest.raises(error, match=fact):
            released.select(**selection)
