"""Parts and selections of manifests in Python."""

from dataclasses import replace

import pytest

import obygaze_features as of
from obygaze_features.errors import ManifestError, UnknownItem, UsageError
from obygaze_features.manifests import LabelSet, Split
from tests.kit.files import write

ROWS = [
    f"c{n},f{n // 4},f{n // 4}/c{n}.mp4,{level},{'Body' if level == 'S' else ''}"
    for n, level in enumerate(["EN", "EN", "HN", "S"] * 2)
]


@pytest.fixture
def table(tmp_path):
    return write(tmp_path / "clips.csv", "id,film,video,level,concepts", *ROWS)


def test_parts_that_could_not_be_read_back_are_refused(table, tmp_path):
    manifest = of.Manifest.from_csv(table)
    loaded = replace(manifest, folder=tmp_path / "m")
    manifest.save(loaded.folder)
    for part, fact in [
        (LabelSet("mine", ["c0"], ["sure"], [("Body",)]), "mine.csv .*c0,sure,Body"),
        (Split("mine", ["c0", "x"], [0, 1]), "line 3: unknown id 'x'"),
    ]:
        for add in (manifest.with_parts, manifest.add, loaded.add):
            with pytest.raises(ManifestError, match=fact):
                add(part)
        assert not (tmp_path / "m" / part.KIND / "mine.csv").exists()
    fewer = replace(manifest, items=manifest.items.take([0]))
    with pytest.raises(ManifestError, match=f"{tmp_path}/fewer/labels/.*unknown id 'c1'"):
        fewer.save(tmp_path / "fewer")
    with pytest.raises(UsageError, match="groups or gap"):
        of.stratified(manifest, folds=2, groups="film", gap=5)
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
    with pytest.raises(UnknownItem, match="did you mean tt0108160-003"):
        released.select(ids="tt0108160-03")
