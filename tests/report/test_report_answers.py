"""Names, groups, measures and empty clips that a page must not confuse."""

import re
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

import obygaze_models as om
from obygaze_features.annotations.merge import merge_labels
from obygaze_features.manifests import Manifest
from tests.kit.run import write_store
from tests.kit.world2 import make_world2
from tests.report.conftest import SURE, Page

STRIP = re.compile(r'<svg class="strip" viewBox="0 0 \S+ (\S+)".*?</svg>', re.S)
PATH = re.compile(r'<path class="(.*?)" d="M\S+ (\S+?)h')
EMPTY = range(6)


@pytest.fixture
def named(world2, run_world2, tmp_path):
    """A page of clips that `model` and `labels` labelled, the latter not those of film 2001."""
    manifest = Manifest.load(world2.manifest)
    sets = []
    for name, old in (("model", "anna"), ("labels", "bo")):
        sets.append(replace(manifest.labels(old), name=name, about={"annotator": name}))
    sets[1] = sets[1].where(lambda clip: not clip.startswith("s0-"))
    merged = merge_labels(sets, manifest.with_parts(*sets), "both")
    manifest.with_parts(*sets, merged).save(tmp_path / "manifest")
    run = run_world2(tmp_path / "run", manifest=tmp_path / "manifest", labels="both", **SURE)
    return Page(om.report(run, tmp_path / "page.html"))


def strips(page):
    """Return the colours of each strip's lanes by their distance from the top."""
    for strip in STRIP.finditer(page.html):
        lanes = {}
        for colour, top in PATH.findall(strip[0]):
            lanes.setdefault(top, set()).add(colour)
        yield lanes


def test_people_called_model_and_labels_keep_their_lanes(named):
    """Labels has none of film 2001, which still has a strip like the others."""
    assert named.row("Film")[0].startswith("labels, model, the model")
    lanes = [*strips(named)]
    for colours in lanes:
        assert "model" not in colours["10"]
        assert colours["20"] == {"model"}
        assert colours.get("30", {"wrong"}) == {"wrong"}
    assert sum("0" not in colours for colours in lanes) == 1
    assert {*STRIP.findall(named.html)} == {"34"}
    assert ["kappa", "labels", "model"] in named.rows
    assert len(named.row("model")) == len(named.row("the model")) == 2


def test_films_show_the_scores_of_their_groups(run_world2, tmp_path):
    """Each film of this world has one file, so its score by file is its score by film."""
    run = run_world2(tmp_path / "run", groups="media", **SURE)
    page = Page(om.report(run, tmp_path / "page.html"))
    own = run.predictions[run.predictions["id"].str.startswith("s2-")]
    area = roc_auc_score(own["label"], own["probability"])
    assert page.row("tide, ebb")[-1] == f"{100 * area:.0f}%"
    assert "AUROC by file" in page.text


def test_an_official_measure_is_also_that_of_clips_that_are_not_empty(run_world2, tmp_path):
    world = make_world2(tmp_path / "world", levels={"A": "Quiet", "A+": "Loud"})
    manifest = Manifest.load(world.manifest)
    labels = manifest.labels()
    official = replace(labels, about=labels.about | {"measure": "trec_average_precision"})
    manifest.with_parts(official).save(tmp_path / "official")
    empty = [world.ids[row] for row in EMPTY]
    rows = world.rows | dict.fromkeys(empty, np.zeros(8, np.float32))
    write_store(tmp_path / "x.zarr", manifest, rows)
    places = {"manifest": tmp_path / "official", "store": tmp_path / "x.zarr"}
    run = run_world2(tmp_path / "run", **places, **SURE)
    assert run.main_metric == "trec_average_precision"
    page = Page(om.report(run, tmp_path / "page.html"))
    full = run.predictions[~run.predictions["id"].isin(empty)]
    expected = average_precision_score(full["label"], full["probability"])
    assert f"{expected:.2f}" in page.row("… without empty clips")[2]
