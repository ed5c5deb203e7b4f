"""Parts and selections of manifests in Python."""

from dataclasses import replace

import pytest

import obygaze_features as of
from obygaze_features.errors import ManifestError, UnknownItem, UsageError
from obygaze_features.manifests import LabelSet, Split


def test_parts_that_could_not_be_read_back_are_refused(source, manifest, tmp_path):
    made = of.Manifest.from_obygaze12(source)
    loaded = of.Manifest.load(manifest)
    first = loaded.ids[0]
    labels = LabelSet("mine", [first], ["sure"], [("Body",)])
    split = Split("mine", [first, "x"], [0, 1])
    for add in (made.add, loaded.with_parts, loaded.add):
        with pytest.raises(ManifestError, match=r"mine.csv .*-001,sure,Body"):
            add(labels)
        with pytest.raises(ManifestError, match="line 3: unknown id 'x'"):
            add(split)
    assert not [*manifest.rglob("mine.csv")]
    fewer = replace(made, items=made.items.take([0]))
    with pytest.raises(ManifestError, match=f"{tmp_path}/fewer/labels/.*unknown id"):
        fewer.save(tmp_path / "fewer")
    with pytest.raises(UsageError, match="groups or gap"):
        of.stratified(made, folds=2, groups="film", gap=5)
    made.add(of.stratified(made, folds=2))
    with pytest.raises(UsageError, match="leak-free"):
        made.add(of.stratified(made, folds=2, seed=1))


def test_items_are_selected(manifest):
    small = of.Manifest.load(manifest)
    for levels in ("Sure", ["S"]):
        assert small.select(levels=levels).ids == ["tt0108160-004", "tt0110912-001"]
    assert small.select(films="tt0110912").ids == ["tt0110912-001"]
    assert small.select(levels=["S"], concepts="Clothes").ids == ["tt0108160-004"]
    chosen = small.select(ids=["tt0110912-001", "tt0108160-003"])
    assert chosen.ids == ["tt0108160-003", "tt0110912-001"]  # in the manifest's order
    assert chosen.labels().level_of == {"tt0108160-003": "NS", "tt0110912-001": "S"}
    with pytest.raises(UnknownItem, match="did you mean tt0108160-003"):
        small.select(ids="tt0108160-03")
