"""Manifests in Python, with paths as `str` or `Path`."""

import pytest

import obygaze_features as of
from obygaze_features.errors import ManifestError, UnknownItem, UsageError
from obygaze_features.manifests import LabelSet
from tests.kit.files import write

ROWS = [
    f"c{n},f{n // 4},f{n // 4}/c{n}.mp4,{level},{'Body' if level == 'S' else ''}"
    for n, level in enumerate(["EN", "EN", "HN", "S"] * 2)
]


@pytest.fixture
def table(tmp_path):
    return write(tmp_path / "clips.csv", "id,film,video,level,concepts", *ROWS)


def test_invalid_parts_are_refused(table):
    manifest = of.Manifest.from_csv(table)
    for level, concept, fact in [
        ("sure", "Body", "has 'sure', which is not a level"),
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
