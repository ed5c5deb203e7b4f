"""Several stores as one model: what each carries, what it lacks, and what is saved."""

import hashlib
import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import obygaze_models as om
from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Item, Items, LabelSet, Manifest
from obygaze_features.manifests.labels import LabelScheme, Level
from obygaze_features.store import ArraySpec, Done, Failed, Status, StoreWriter
from tests.kit.run import RECIPE, write_experiment

FILMS, CLIPS = 12, 40
ALONE = ("see", "hear", "read")


def write_store(path, manifest, features, absent=()):
    """A store of one array; some rows failed."""
    recipe = replace(
        RECIPE,
        name=path.stem,
        backbone={
            **RECIPE.backbone,
            "weights_sha256": hashlib.sha256(path.stem.encode()).hexdigest(),
        },
        arrays=(ArraySpec("native", (features.shape[1],), "float32", "one vector a clip"),),
    )
    writer = StoreWriter.create(path, manifest, recipe, block_rows=512)
    rows = [
        Failed(Status.UNREADABLE, "has no sound track", None)
        if row in absent
        else Done({"native": values}, None)
        for row, values in enumerate(features)
    ]
    writer.write_block(0, rows)
    return path


def write_senses(folder, *, strength=1.2, absent=()):
    """480 clips of 12 films: sound tells the class, what is seen and read does not.

    The other stores are far larger in scale; what is seen tells the film.
    """
    chance = np.random.default_rng(3)
    ids = [f"film{film:02}-{clip:03}" for film in range(FILMS) for clip in range(CLIPS)]
    truth = chance.integers(0, 2, len(ids))
    manifest = Manifest(
        name="senses",
        items=Items.of([Item(i, film=i[:6], media=f"{i[:6]}.mp4", start=float(n % CLIPS),
                             end=n % CLIPS + 1.0) for n, i in enumerate(ids)]),
        scheme=LabelScheme("two", (Level("EN", "Easy Negative"), Level("S", "Sure"))),
        source="a test",
        licence="CC0",
    ).with_parts(labels=[LabelSet("all", ids, [("EN", "S")[code] for code in truth], [()] * len(ids))])  # fmt: skip
    manifest.save(folder / "manifest")
    film = np.arange(len(ids)) // CLIPS
    hear = chance.normal(size=(len(ids), 6))
    hear[:, 0] += strength * (2 * truth - 1)
    see = 50 * chance.normal(size=(len(ids), 24)) + 100 * chance.normal(size=(FILMS, 24))[film]
    write_store(folder / "see.zarr", manifest, see.astype(np.float32))
    write_store(folder / "hear.zarr", manifest, hear.astype(np.float32), absent)
    read = 30 * chance.normal(size=(len(ids), 12))
    write_store(folder / "read.zarr", manifest, read.astype(np.float32))
    return ids, truth, hear


@pytest.fixture(scope="module")
def senses(tmp_path_factory):
    folder = tmp_path_factory.mktemp("senses")
    return folder, *write_senses(folder)


def experiment(folder, **keys):
    values = {"stores": [f"{name}.zarr" for name in ALONE], "groups": "film",
              "estimators": ["logistic"]}  # fmt: skip
    return write_experiment(
        folder / "experiment.toml",
        **{"name": "Senses", "manifest": "manifest", "positives": ["S"],
           "train_negatives": ["EN"], **values, **keys},
    )  # fmt: skip


def auroc(run):
    """By model the AUROC, and the ends of its interval."""
    rows = [row for row in run.scores() if row["metric"] == "auroc"]
    return {row["model"]: (row["mean"], row["low"], row["high"]) for row in rows}


def test_fusion_finds_what_one_store_carries(senses, tmp_path):
    folder, _, truth, hear = senses
    both = ["logistic", {"name": "logistic", "as": "late", "fusion": "late"}]
    file = experiment(folder, estimators=both, each_store=True)
    run = om.run_experiment(file, tmp_path / "run")
    best = roc_auc_score(truth, hear[:, 0])  # along the true direction
    scores = auroc(run)
    for model in ("logistic", "late"):
        assert scores[model][0] > best - 0.04
        assert scores[f"{model}, hear alone"][0] > best - 0.03
        for nothing in ("see alone", "without hear"):
            _, low, high = scores[f"{model}, {nothing}"]
            assert low <= 0.5 <= high
