"""An id means one clip: labels and features are joined only if it names one file and span."""

import numpy as np
import pandas as pd
import pytest

import obygaze_features as of
import obygaze_models as om
from obygaze_features.errors import ExperimentError, ManifestError
from obygaze_features.manifests import Item, Items, LabelSet
from tests.kit.files import refused
from tests.kit.run import write_store

ROWS = []
for film in range(4):
    for start in range(0, 32, 8):
        ROWS.append((f"walk-{film}.mp4", start, start + 4, "tense"))
        ROWS.append((f"walk-{film}.mp4", start + 4, start + 8, "calm"))


def write_table(path, rows):
    """Write a table whose ids number the rows of each file, as obygaze did before version 0.4."""
    table = pd.DataFrame(rows, columns=["file", "start", "end", "level"])
    number = 1 + table.groupby("file").cumcount()
    stem = table["file"].str.removesuffix(".mp4")
    table["id"] = stem + number.map("-{:03d}".format)
    table.to_csv(path, index=False)
    return path


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """A store of labelled spans, and a manifest of the same table in another order."""
    monkeypatch.chdir(tmp_path)
    by_level = sorted(ROWS, key=lambda row: row[3])
    tables = {"manifest": ROWS, "sorted": by_level, "fewer": ROWS[1:]}
    for name, rows in tables.items():
        source = write_table(tmp_path / "clips.csv", rows)
        of.Manifest.from_csv(source, levels="calm,tense").save(tmp_path / name)
    manifest = of.Manifest.load("manifest")
    features = np.random.default_rng(0).normal(size=(len(manifest), 8))
    write_store(tmp_path / "x.zarr", manifest, dict(zip(manifest.ids, features, strict=True)))
    return tmp_path


def experiment(manifest):
    places = {"manifest": manifest, "store": "x.zarr"}
    levels = {"positives": ["tense"], "train_negatives": ["calm"]}
    return om.Experiment(name="calm", estimators=["logistic"], **places, **levels)


@pytest.mark.parametrize("name", ["sorted", "fewer"])
def test_a_table_in_another_order_is_not_joined(lab, name, obygaze):
    fact = "walk-0-001 is another file, film or span in the store"
    with pytest.raises(ManifestError, match=fact):
        om.run_experiment(experiment(name), "run")
    refused(obygaze("bias", "eat", "emotion", "--store", "x.zarr", "--manifest", name), fact)


def test_a_model_knows_its_clips_by_their_spans(lab):
    om.train_model(experiment("manifest"), "model")
    with pytest.raises(ManifestError, match="id walk-0-001 is another"):
        om.evaluate("model", "x.zarr", "sorted")
    later = [("walk-0.mp4", 32 + row, 33 + row, "calm") for row in range(3)]  # after the last
    table = write_table(lab / "later.csv", [*later, ("walk-0.mp4", 0, 4, "calm")])
    manifest = of.Manifest.from_csv(table, levels="calm,tense")
    assert manifest.ids[0] in of.Manifest.load("manifest").ids
    write_store(lab / "later.zarr", manifest, {clip: np.ones(8) for clip in manifest.ids})
    seen = om.predict("model", "later.zarr").table["seen"]
    assert seen.tolist() == ["film"] * 3 + ["clip"]


def test_a_store_without_the_clips_is_named(lab):
    manifest = of.Manifest.load("manifest")
    first = manifest.ids[0]
    write_store(lab / "one.zarr", manifest.select(ids=[first]), {first: np.ones(8)})
    with pytest.raises(ExperimentError, match="none of the 31 selected clips of clips"):
        om.load_dataset(manifest.select(ids=manifest.ids[1:]), "one.zarr")


def test_stores_that_are_read_together_have_the_same_clips(lab):
    other = of.Manifest.load("sorted")
    write_store(lab / "y.zarr", other, {clip: np.ones(8) for clip in other.ids})
    with pytest.raises(ManifestError, match=r"in .*y\.zarr"):
        om.load_dataset("manifest", ["x.zarr", "y.zarr"])


@pytest.mark.parametrize(
    ("ours", "theirs", "is_same"),
    [
        (Item("a", media="A.mp4"), Item("a", media="sub/a.mkv"), True),
        (Item("a"), Item("a", media="b.mp4", start=1, end=2), True),  # nothing is recorded
        (Item("a", media="a", start=1, end=2), Item("a", media="a", start=1, end=2.00001), False),
    ],
)
def test_only_what_both_record_is_compared(ours, theirs, is_same, tmp_path):
    stored = of.Manifest("m", Items.of([ours]))
    asked = of.Manifest("m", Items.of([theirs]))
    write_store(tmp_path / "x.zarr", stored, {"a": np.ones(8)})
    asked = asked.with_parts(LabelSet("levels", ["a"], ["S"], [()]))
    if is_same:
        assert om.load_dataset(asked, tmp_path / "x.zarr").ids == ["a"]
        return
    with pytest.raises(ManifestError, match="id a is"):
        om.load_dataset(asked, tmp_path / "x.zarr")
