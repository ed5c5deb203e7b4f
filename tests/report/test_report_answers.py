"""Names, groups, measures and empty clips that a page must not confuse."""

import re
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

import obygaze_models as om
from obygaze_features import import_features
from obygaze_features.annotations.merge import merge_labels
from obygaze_features.manifests import LabelSet, Manifest
from tests.kit.run import labelled, write_store
from tests.kit.world2 import make_world2
from tests.report.conftest import SURE, Page

STRIP = re.compile(r'<svg class="strip".*?</svg>', re.S)
PATH = re.compile(r'<path class="(.*?)" d="(.*?)"/>')
LEVELS = ["EN", "S", "HN", "NS"]


def strips(page):
    """Return each strip's height, and the colours and clips of its lanes from the top."""
    found = []
    for strip in STRIP.findall(page.html):
        height = re.search(r'viewBox="0 0 \S+ (\S+)"', strip)[1]
        marks = {}
        for colour, outline in PATH.findall(strip):
            tops = {top for _, top in re.findall(r"M(\S+) (\S+?)h", outline)}
            marks.setdefault(min(map(float, tops)), set()).add(colour)
        found.append((height, marks))
    return found


@pytest.fixture(scope="module")
def annotated(tmp_path_factory):
    """A run on clips that people called `model` and `labels` labelled, the latter not film tt0."""
    folder = tmp_path_factory.mktemp("names")
    chance = np.random.default_rng(3)
    ids = [f"tt{row % 5}-{row:03}" for row in range(100)]
    levels = [LEVELS[row // 5 % 4] for row in range(100)]
    manifest = labelled(ids, levels, folds=[row // 20 % 5 for row in range(100)])
    people = {"model": ids, "labels": [clip for clip in ids if not clip.startswith("tt0")]}
    sets = []
    for name, own in people.items():
        level_of = dict(zip(ids, chance.permutation(levels).tolist(), strict=True))
        own_levels = [level_of[clip] for clip in own]
        about = {"annotator": name}
        sets.append(LabelSet(name, own, own_levels, [()] * len(own), about=about))
    manifest = manifest.with_parts(*sets)
    merged = merge_labels(sets, manifest)
    replace(manifest.with_parts(merged), default_labels=merged.name).save(folder / "manifest")
    features = chance.normal(size=(100, 8)).astype(np.float32)
    features[[merged.level_of[clip] == "S" for clip in ids]] += 1
    write_store(folder / "toy.zarr", manifest, dict(zip(ids, features, strict=True)))
    experiment = om.Experiment(
        name="names",
        manifest=folder / "manifest",
        store=folder / "toy.zarr",
        split="ten",
        positives=("S",),
        train_negatives=("EN", "HN", "NS"),
        estimators=("logistic",),
    )
    return om.run_experiment(experiment, folder / "run")


def test_people_called_model_and_labels_keep_their_lanes(annotated, tmp_path):
    page = Page(om.report(annotated, tmp_path / "page.html"))
    assert page.row("Film")[0].startswith("labels, model, the model")
    for _, marks in strips(page):
        assert marks.keys() <= {0.0, 10.0, 20.0, 30.0}
        assert "model" not in marks[10.0]
        assert marks[20.0] == {"model"}
        assert marks.get(30.0, {"wrong"}) == {"wrong"}
    kappas = [row[0] for row in page.rows if row and row[0].endswith("the model")]
    assert kappas == ["labels, the model", "model, the model"]


def test_a_film_that_someone_left_out_has_a_strip_like_the_others(annotated, tmp_path):
    page = Page(om.report(annotated, tmp_path / "page.html"))
    lanes = strips(page)
    assert sum(0.0 not in marks for _, marks in lanes) == 1
    assert {height for height, _ in lanes} == {"34"}


def test_films_show_the_scores_of_their_files(run_world2, tmp_path):
    """Each film of this world has one file, so its score by file is its score by film."""
    pages = []
    for groups in (None, "media"):
        run = run_world2(tmp_path / f"by-{groups}", groups=groups, **SURE)
        pages.append(Page(om.report(run, tmp_path / f"{groups}.html")))
        own = run.predictions[run.predictions["id"].str.startswith("s2-")]
        area = roc_auc_score(own["label"], own["probability"])
        score = pages[-1].row("tide, ebb")[-1]
        assert score == f"{100 * area:.0f}%"
    assert "AUROC by file ↓" in pages[1].text
    assert "AUROC by" not in pages[0].text


def test_an_official_measure_is_also_that_of_clips_that_are_not_empty(tmp_path):
    world = make_world2(tmp_path / "world", levels={"A": "Quiet", "A+": "Loud"})
    manifest = Manifest.load(world.manifest)
    labels = manifest.labels()
    official = replace(labels, about=labels.about | {"measure": "trec_average_precision"})
    manifest.with_parts(official).save(tmp_path / "official")
    rows = dict(zip(world.ids, world.features, strict=True))
    rows |= dict.fromkeys(world.ids[:6], np.zeros(8, np.float32))
    write_store(tmp_path / "toy.zarr", manifest, rows)
    experiment = om.Experiment(
        name="official",
        manifest=tmp_path / "official",
        store=tmp_path / "toy.zarr",
        split="three",
        estimators=("logistic",),
        **SURE,
    )
    run = om.run_experiment(experiment, tmp_path / "run")
    assert run.main_metric == "trec_average_precision"
    page = Page(om.report(run, tmp_path / "page.html"))
    full = run.predictions[~run.predictions["id"].isin(world.ids[:6])]
    expected = average_precision_score(full["label"], full["probability"])
    assert page.row("… without empty clips")[1].startswith(f"{expected:.2f}")


def test_unknown_origin_is_the_last_warning_and_no_alarm(run_world2, world2, tmp_path):
    manifest = Manifest.load(world2.manifest)
    np.save(tmp_path / "X.npy", world2.features * (np.arange(len(manifest)) > 5)[:, None])
    store = tmp_path / "x.zarr"
    import_features(tmp_path / "X.npy", manifest, store, ids=manifest.ids)
    run = om.run_experiment(
        om.Experiment(
            name="own",
            manifest=world2.manifest,
            store=store,
            split="three",
            estimators=("logistic",),
            **SURE,
        ),
        tmp_path / "run",
    )
    assert [warning.code for warning in run.warnings] == ["zeros", "unknown-origin"]
    page = Page(om.report(run, tmp_path / "page.html"))
    assert 'class="alarm"' not in page.html
    assert any("origin of the unknown features" in row[0] for row in page.rows if row)
