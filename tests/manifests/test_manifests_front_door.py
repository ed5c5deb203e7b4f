"""Manifests from Python: the calls of the front door, with paths as texts or as `Path`."""

from pathlib import Path

import pytest

import obygaze_features as of
from obygaze_features.errors import ManifestError, OutputExists, UsageError
from obygaze_features.manifests import LabelSet
from tests.manifests.sources import write_source

ROWS = "id,film,video,level,concepts\n" + "".join(
    f"c{n},f{n // 4},f{n // 4}/c{n}.mp4,{level},{'Body' if level == 'S' else ''}\n"
    for n, level in enumerate(["EN", "EN", "HN", "S"] * 2)
)


@pytest.fixture(params=[str, Path], ids=["str", "Path"])
def kind(request):
    return request.param


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "clips.csv"
    path.write_text(ROWS)
    return path


def test_from_a_table_to_a_split(table, tmp_path, kind):
    manifest = of.Manifest.from_csv(kind(table), columns={"level": "level"})
    manifest.add_split(of.stratified(manifest, folds=2))
    manifest.save(kind(tmp_path / "m"))
    loaded = of.Manifest.load(kind(tmp_path / "m"))
    assert loaded.digest == manifest.digest
    assert loaded.split("leak-free").sizes == [4, 4]
    assert loaded.check() == []
    assert loaded.select(levels=["S"]).ids == ["c3", "c7"]
    (tmp_path / "films/f0").mkdir(parents=True)
    (tmp_path / "films/f0/c0.mkv").touch()
    located = loaded.locate(kind(tmp_path / "films"))
    assert (list(located.found), len(located.missing)) == (["c0"], 7)
    assert repr(located) == "Located(1 found, 7 missing, 0 ambiguous)"


def test_what_is_added_to_a_loaded_manifest_is_saved(table, tmp_path):
    of.Manifest.from_csv(table).save(tmp_path / "m")
    loaded = of.Manifest.load(tmp_path / "m")
    loaded.add_split(of.leave_film_out(loaded))
    assert of.Manifest.load(tmp_path / "m").split("leave-film-out").sizes == [4, 4]
    with pytest.raises(OutputExists, match="leave-film-out"):
        loaded.add_split(of.leave_film_out(loaded))
    loaded.add_split(of.leave_film_out(loaded), overwrite=True)


@pytest.mark.parametrize(
    ("level", "concept", "message"),
    [
        ("sure", "Body", r"'sure' is not a level of the scheme \(EN, HN, NS, S\)"),
        ("S", "Nonsense", "'Nonsense' is not a concept of the scheme"),
    ],
)
def test_labels_that_could_not_be_read_again_are_refused(table, level, concept, message):
    manifest = of.Manifest.from_csv(table)
    labels = LabelSet("mine", ["c0"], [level], [(concept,)])
    with pytest.raises(ManifestError, match=message):
        manifest.with_parts(labels=[labels])
    with pytest.raises(ManifestError, match=message):
        manifest.add_labels(labels)


def test_part_of_the_same_name_is_not_replaced(table):
    manifest = of.Manifest.from_csv(table)
    manifest.add_split(of.stratified(manifest, folds=2))
    with pytest.raises(UsageError, match="leak-free"):
        manifest.add_split(of.stratified(manifest, folds=2, seed=1))
    with pytest.raises(UsageError, match="save it first"):
        manifest.check()


def test_every_importer_is_a_constructor(tmp_path, kind):
    source = write_source(tmp_path / "annotations.csv")
    assert of.Manifest.from_obygaze12(kind(source), rule="raw").default_labels == "raw"
    (tmp_path / "films/Juno").mkdir(parents=True)
    (tmp_path / "films/Juno/a.mp4").touch()
    assert of.Manifest.from_folder(kind(tmp_path / "films")).ids == ["Juno-a"]
    (tmp_path / "words.csv").write_text("stimulus\nengineer\n")
    prompts = of.Manifest.from_prompts(kind(tmp_path / "words.csv"), ["a {}"])
    assert (prompts.items.texts, prompts.notes[0]) == (["an engineer"], "1 stimulus in 1 template")
    (tmp_path / "MEDIAEVALviolence.txt").write_text("name\tviolenceClass\nACCEDE1.mp4\t1\n")
    assert of.Manifest.from_mediaeval(kind(tmp_path)).labels().levels == ["violent"]
