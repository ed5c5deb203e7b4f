"""The share of pages that call noise a finding."""

import numpy as np
import pytest

import obygaze_models as om
from tests.kit.run import labelled, write_store
from tests.report.conftest import Page

FILMS, SCENES, RUNS = 12, 30, 60


@pytest.mark.night
@pytest.mark.parametrize("tests", [1, 5])
def test_noise_is_a_finding_in_at_most_five_of_a_hundred_runs(tests, tmp_path):
    """Each page has as many rows as there are runs on the same labels, all of them noise."""
    ids = [f"tt{film:02}-{scene:03}" for film in range(FILMS) for scene in range(SCENES)]
    levels = ["S" if row % 3 == 0 else "EN" for row in range(len(ids))]
    folds = [row // SCENES for row in range(len(ids))]
    manifest = labelled(ids, levels, folds=folds)
    manifest.save(tmp_path / "manifest")
    write_store(tmp_path / "store.zarr", manifest, dict.fromkeys(ids, np.ones(8, np.float32)))
    chance, claims = np.random.default_rng(tests), 0
    for number in range(RUNS):
        runs = []
        for test in range(tests):
            noise = chance.random(len(ids)).tolist()
            rows = [f"{clip},noise,{p:.6f}" for clip, p in zip(ids, noise, strict=True)]
            (tmp_path / "noise.csv").write_text("\n".join(["id,model,probability", *rows]))
            experiment = om.Experiment(
                name=f"noise {test}", manifest=tmp_path / "manifest",
                store=tmp_path / "store.zarr", split="ten",
                positives=["S"], train_negatives=["EN"], predictions=[tmp_path / "noise.csv"],
                estimators=[],
            )  # fmt: skip
            runs.append(om.run_experiment(experiment, tmp_path / f"run-{number}-{test}"))
        page = Page(om.report(runs, tmp_path / "page.html", overwrite=True))
        claims += page.html.count('class="point"') > 0
    assert claims <= RUNS * 0.05
