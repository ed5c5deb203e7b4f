from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from obygaze_models.experiments.run import run_experiment
from obygaze_models.experiments.run_folder import Clip, Explained, read_results
from obygaze_models.explain.concept_quality import concept_quality
from tests.world import make_world


def clip(name, level, *concepts):
    return Clip(name, "tt1", "A film", "", None, None, level, concepts, 9, "")


CLIPS = {
    one.id: one
    for one in (
        clip("a", "S", "Look", "Body"),
        clip("b", "HN", "Look"),
        clip("c", "S", "Body"),
        clip("d", "EN"),
        clip("e", "EN", "Look"),  # marked all the same: neither with nor without
        clip("f", "NS", "Look"),
        clip("g", "HN"),
    )
}


def explained(ids, looks, run=0, **more):
    values = np.column_stack([looks, np.zeros(len(ids))])
    given = {"model": "pcbm-tree", "task": "t", "kind": "path", "concepts": ("Look", "Body")}
    return Explained(
        **(given | more), fit=run, ids=list(ids), labels=["S"] * len(ids), values=values
    )


def test_clips_with_a_concept_against_clips_without():
    look, body = concept_quality([explained("abcdefg", [3, 1, 2, 0, 9, -9, -1])], CLIPS)
    # Look: a, b against c, d, g; b alone lies below one of them.
    assert (look.concept, look.clips, look.positives, look.runs) == ("Look", 5, 2, 1)
    assert look.auroc == pytest.approx(5 / 6)
    assert look.average_precision == pytest.approx((1 + 2 / 3) / 2)
    assert look.share == pytest.approx(2 / 5)
    # Body: a, c against b, d, e, g, none of which is measured otherwise than another.
    assert (body.clips, body.positives) == (6, 2)
    assert body.auroc == 0.5
    assert body.average_precision == pytest.approx(body.share) == pytest.approx(1 / 3)


def test_runs_are_averaged_and_clips_are_counted_once():
    runs = [explained("abcd", [3, 2, 1, 0]), explained("abcd", [0, 1, 2, 3], run=1)]
    look = concept_quality(runs, CLIPS)[0]
    assert (look.auroc, look.auroc_std) == (0.5, 0.5)
    assert (look.clips, look.positives, look.runs) == (4, 2, 2)
    apart = concept_quality([explained("ac", [1, 0]), explained("bdg", [1, 2, 3], run=1)], CLIPS)[0]
    assert (apart.auroc, apart.clips, apart.positives, apart.runs) == (0.5, 5, 2, 2)


def test_without_both_kinds_of_clips_there_is_no_score():
    look, body = concept_quality([explained("dg", [1, 2]), explained("ab", [1, 2], run=1)], CLIPS)
    assert (look.auroc, look.average_precision, look.auroc_std, look.share) == (None,) * 4
    assert (look.clips, look.positives, look.runs) == (4, 2, 0)
    assert (body.runs, body.auroc) == (1, 0.5)
    assert concept_quality([explained("", [])], CLIPS)[0].clips == 0


def test_networks_are_left_out_and_models_and_tasks_kept_apart():
    runs = [
        explained("abcd", [3, 2, 1, 0]),
        explained("abcd", [3, 2, 1, 0], model="mlp", kind="sensitivity"),
        explained("abcd", [0, 1, 2, 3], task="u", concepts=("Body", "Look")),
    ]
    rows = [(one.model, one.task, one.concept) for one in concept_quality(runs, CLIPS)]
    assert rows == [
        ("pcbm-tree", "t", "Look"),
        ("pcbm-tree", "t", "Body"),
        ("pcbm-tree", "u", "Body"),
        ("pcbm-tree", "u", "Look"),
    ]


@pytest.mark.gate
def test_of_a_run_it_is_what_scikit_learn_says(experiment, tmp_path_factory):
    folder = tmp_path_factory.mktemp("quality")
    world = make_world(folder, marked=True)
    changed = replace(
        experiment, manifest=world.manifest, store=world.store, estimators=("mlp", "pcbm-logistic")
    )
    results = read_results(run_experiment(changed, folder / "run").folder)
    of = [one for one in results.explained if one.model == "pcbm-logistic"]
    found = concept_quality(results.explained, results.clips)
    assert [row.concept for row in found] == list(of[0].concepts)
    for column, row in enumerate(found):
        areas, precisions = [], []
        for run in of:
            of_test = [results.clips[one] for one in run.ids]
            counts = [
                clip.level in ("HN", "S")
                or (clip.level == "EN" and row.concept not in clip.concepts)
                for clip in of_test
            ]
            truth = np.array([row.concept in clip.concepts for clip in of_test])[counts]
            values = run.values[counts, column]
            areas.append(roc_auc_score(truth, values))
            precisions.append(average_precision_score(truth, values))
        assert row.auroc == pytest.approx(np.mean(areas))
        assert row.auroc_std == pytest.approx(np.std(areas))
        assert row.average_precision == pytest.approx(np.mean(precisions))
        assert row.average_precision_std == pytest.approx(np.std(precisions))
        assert row.runs == len(of) == 9
