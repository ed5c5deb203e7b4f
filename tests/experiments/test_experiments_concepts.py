"""The table of a run that detects several concepts."""

import re

from msgspec import structs
from statsmodels.stats.multitest import multipletests

import obygaze_models as om
from obygaze_models.experiments.summary import describe_run
from tests.kit.intervals import cross_validated_p
from tests.kit.run import CONCEPTS


def test_each_concept_has_a_row_with_holm_adjusted_p_values(experiment, marked, tmp_path):
    changed = structs.replace(
        experiment, manifest=str(marked.manifest), store=str(marked.store), positives=(),
        train_negatives=(), test_negatives=(), concepts=CONCEPTS, negatives="b",
        protocol="leave-film-out", split=None, min_clips=1, balance="none",
        estimators=("logistic",),
    )  # fmt: skip
    run = om.run_experiment(changed, tmp_path / "run")
    text = describe_run(run).partition("\n\n")[0]
    p_values = [
        cross_validated_p([film["auroc"] - 0.5 for film in scores.groups.values()])
        for scores in run.record.scores
    ]
    expected = multipletests(p_values, method="holm")[1]
    for scores, name, p_value in zip(run.record.scores, CONCEPTS, expected, strict=True):
        [line] = re.findall(rf"^{name} .*", text, re.M)
        assert f"{scores.mean['auroc']:.2f}" in line
        assert line.endswith("< .001" if p_value < 0.0005 else f"{p_value:.3f}")
