"""Names, groups, measures and empty clips that a page must not confuse."""

import re
from dataclasses import replace

import numpy as np
from sklearn.metrics import average_precision_score, roc_auc_score

import obygaze_models as om
from obygaze_features.annotations.merge import merge_labels
from obygaze_features.manifests import Manifest
from tests.kit.run import write_store
from tests.kit.world2 import make_world2
from tests.report.conftest import SURE, Page


def test_people_called_model_and_labels_keep_their_lanes(world2, run_world2, tmp_path):
    """Labels has none of film 2001, which still has a strip like the others."""
    manifest = Manifest.load(world2.manifest)
    sets = []
    for name, old in (("model", "anna"), ("labels", "bo")):
        sets.append(replace(manifest.labels(old), name=name, about={"annotator": name}))
    sets[1] = sets[1].where(lambda clip: not clip.startswith("s0-"))
    merged = merge_labels(sets, manifest.with_parts(*sets), "both")
    manifest.with_parts(*sets, merged).save(tmp_path / "manifest")
    run = run_world2(tmp_path / "run", manifest=tmp_path / "manifest", labels="both", **SURE)
    page = Page(om.report(run, tmp_path / "page.html"))
    assert page.row("Film")[0].startswith("labels, model, the model")
    lanes = re.findall(r'<path class="(model|wrong)" d="M\S+ (\S+?)h', page.html)
    assert {*lanes} == {("model", "20"), ("wrong", "30")}
    assert ["kappa", "labels", "model"] in page.rows
    assert len(page.row("model")) == len(page.row("the model")) == 2


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
    empty = [world.ids[row] for row in range(6)]
    rows = world.rows | dict.fromkeys(empty, np.zeros(8, np.float32))
    write_store(tmp_path / "x.zarr", manifest, rows)
    places = {"manifest": tmp_path / "official", "store": tmp_path / "x.zarr"}
    run = run_world2(tmp_path / "run", **places, **SURE)
    assert run.main_metric == "trec_average_precision"
    page = Page(om.report(run, tmp_path / "page.html"))
    full = run.predictions[~run.predictions["id"].isin(empty)]
    expected = average_precision_score(full["label"], full["probability"])
    assert f"{expected:.2f}" in page.row("… without empty clips")[2]
