"""An id means one clip: labels and features are joined only if it names one file and span."""

from collections import Counter

import numpy as np
import pytest

import obygaze_features as of
import obygaze_models as om
from obygaze_features.errors import ManifestError
from obygaze_features.items.items import require_same_clips
from obygaze_features.manifests import Item, Items
from tests.kit.files import refused, write
from tests.kit.run import write_store

SPANS = [f"walk-{film}.mp4,{4 * row},{4 * row + 4}" for film in range(4) for row in range(8)]
LEVELS = ["tense", "calm"] * 16
EXPERIMENT = [
    "name = 'calm'",
    "store = 'x.zarr'",
    "split = 'leave-film-out'",
    "positives = ['tense']",
    "train_negatives = ['calm']",
    "estimators = ['logistic']",
]


def write_table(path, rows):
    """Write a table whose ids number the rows of each file, as obygaze did before version 0.4."""
    lines = []
    numbers = Counter()
    for span, level in rows:
        file = span.partition(".")[0]
        numbers[file] += 1
        lines.append(f"{file}-{numbers[file]:03d},{span},{level}")
    return write(path, "id,file,start,end,level", *lines)


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """A store of labelled spans, and a manifest of the same table in another order."""
    monkeypatch.chdir(tmp_path)
    rows = list(zip(SPANS, LEVELS, strict=True))
    tables = {"manifest": rows, "sorted": sorted(rows, key=lambda row: row[1]), "fewer": rows[1:]}
    for name, table in tables.items():
        source = write_table(tmp_path / "clips.csv", table)
        manifest = of.Manifest.from_csv(source, levels="calm,tense")
        manifest.add(of.leave_film_out(manifest))
        manifest.save(tmp_path / name)

    manifest = of.Manifest.load("manifest")
    features = np.random.default_rng(0).normal(size=(len(manifest), 8)).astype(np.float32)
    write_store(tmp_path / "x.zarr", manifest, dict(zip(manifest.ids, features, strict=True)))
    return tmp_path


@pytest.mark.parametrize("name", ["sorted", "fewer"])
def test_a_table_in_another_order_is_not_joined(lab, name, obygaze):
    fact = "walk-0-001 is another file, film or span in the store"
    with pytest.raises(ManifestError, match=fact):
        om.load_dataset(name, "x.zarr", positives=["tense"], negatives=["calm"])

    toml = write(lab / "e.toml", *EXPERIMENT, f"manifest = '{name}'")
    result = obygaze("models", "run", toml, "-o", "run", code=1)
    assert fact in result.stderr
    assert not (lab / "run").exists()
    refused(obygaze("bias", "eat", "emotion", "--store", "x.zarr", "--manifest", name), fact)


def test_a_model_is_neither_scored_nor_placed_with_other_clips(lab, obygaze):
    toml = write(lab / "e.toml", *EXPERIMENT, "manifest = 'manifest'")
    obygaze("models", "train", toml, "-o", "model", code=0)
    refused(obygaze("models", "evaluate", "model", "x.zarr", "sorted"), "id walk-0-001 is another")


def test_a_new_span_with_an_old_id_was_not_seen(lab, obygaze):
    toml = write(lab / "e.toml", *EXPERIMENT, "manifest = 'manifest'")
    obygaze("models", "train", toml, "-o", "model", code=0)
    later = [(f"walk-0.mp4,{32 + row},{33 + row}", "calm") for row in range(3)]  # after the last
    table = write_table(lab / "later.csv", [*later, ("walk-0.mp4,0,4", "calm")])
    manifest = of.Manifest.from_csv(table, levels="calm,tense")
    assert manifest.ids[0] in of.Manifest.load("manifest").ids
    write_store(lab / "later.zarr", manifest, {clip: np.ones(8) for clip in manifest.ids})

    seen = om.predict("model", "later.zarr").table["seen"]
    assert seen.tolist() == ["film"] * 3 + ["clip"]


def test_stores_that_are_read_together_have_the_same_clips(lab):
    write_store(
        lab / "y.zarr",
        of.Manifest.load("sorted"),
        dict.fromkeys(of.Manifest.load("sorted").ids, np.ones(8, np.float32)),
    )
    with pytest.raises(ManifestError, match=r"in .*y\.zarr"):
        om.load_dataset("manifest", ["x.zarr", "y.zarr"], positives=["tense"], negatives=["calm"])


@pytest.mark.parametrize(
    ("ours", "theirs", "is_same"),
    [
        (Item("a", media="A.mp4"), Item("a", media="sub/a.mkv"), True),
        (Item("a", media="a.mp4"), Item("a", media="b.mp4"), False),
        (Item("a"), Item("a", media="b.mp4", start=1, end=2), True),  # nothing is recorded
        (Item("a", media="a.mp4"), Item("a", media="film.mp4", start=1, end=2), True),
        (Item("a", media="f", start=1, end=2), Item("a", media="f", start=1, end=2.00001), False),
        (Item("a", film="f", start=1, end=2), Item("a", film="f", start=1, end=2), True),
        (Item("a", film="f", start=1, end=2), Item("a", film="g", start=3, end=4), False),
        (Item("a", film="f", start=1, end=2), Item("a", film="g", start=1, end=2), False),
        (Item("a", media="a.mp4"), Item("b", media="b.mp4"), True),
    ],
)
def test_only_what_both_record_is_compared(ours, theirs, is_same):
    tables = Items.of([ours, Item("x")]), Items.of([Item("y"), theirs])
    if is_same:
        require_same_clips(*tables)
    else:
        with pytest.raises(ManifestError, match="id a is"):
            require_same_clips(*tables)
