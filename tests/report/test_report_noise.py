"""The share of pages that call noise a finding."""

import numpy as np
import pytest

import obygaze_models as om
from obygaze_models.report.findings import findings
from tests.kit.run import labelled, write_store
from tests.report.conftest import plain
from tests.report.test_report_numbers import first_screen

FILMS, SCENES, RUNS = 12, 30, 200


@pytest.mark.night
@pytest.mark.parametrize("models", [1, 5, 10])
def test_noise_is_a_finding_in_at_most_five_of_a_hundred_runs(models, tmp_path):
    """Each run draws new predictions. The first model is named before the test."""
    ids = [f"tt{film:02}-{scene:03}" for film in range(FILMS) for scene in range(SCENES)]
    levels = ["S" if row % 3 == 0 else "EN" for row in range(len(ids))]
    folds = [row // SCENES for row in range(len(ids))]
    manifest = labelled(ids, levels, folds=folds)
    manifest.save(tmp_path / "manifest")
    write_store(tmp_path / "store.zarr", manifest, dict.fromkeys(ids, np.ones(8, np.float32)))
    chance, claims = np.random.default_rng(models), 0
    for number in range(RUNS):
        rows = ["id,model,probability"]
        for model in range(models):
            noise = chance.random(len(ids)).tolist()
            rows += [f"{clip},noise-{model},{p:.6f}" for clip, p in zip(ids, noise, strict=True)]
        (tmp_path / "noise.csv").write_text("\n".join(rows))
        experiment = om.Experiment(
            "noise", tmp_path / "manifest", tmp_path / "store.zarr", split="ten",
            positives=["S"], train_negatives=["EN"], estimators=["majority"],
            predictions=[tmp_path / "noise.csv"], headline="noise-0",
        )  # fmt: skip
        run = om.run_experiment(experiment, tmp_path / f"run-{number}")
        verdict = plain(findings(first_screen(run))[0])
        claims += "ranks clips better than chance" in verdict and "cannot say" not in verdict
    assert claims <= RUNS * 0.05
