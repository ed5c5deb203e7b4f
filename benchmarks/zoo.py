from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, cross_val_predict
from threadpoolctl import threadpool_limits

import obygaze_models as om
from benchmarks import zoo_peers
from benchmarks.clips import known_clips
from benchmarks.memory import peak_mib
from benchmarks.result import Result
from benchmarks.store import make_store
from obygaze_models.data.stores import open_stores, read_features
from obygaze_models.data.targets import concept_targets
from obygaze_models.data.tasks import two_classes
from obygaze_models.estimators.svm_solver import DEFAULT_CS, clip_weights, fit_svm
from obygaze_models.experiments.cross_validate import compute_run
from obygaze_models.experiments.learner import Learner
from obygaze_models.experiments.plan import Plan
from obygaze_models.studies.reproduce.protocols import PapersText

EASY, HARD, ALL = (two_classes({}, ["S"], levels) for levels in (["EN"], ["HN"], ["EN", "HN"]))
TABLE_2 = {EASY: [EASY, ALL], HARD: [EASY, ALL]}
FILMS = om.LeaveFilmOut(validation_films=None, balance="none")
MANY = 100_000


def measure() -> Iterator[Result]:
    """Measure the promised speed and memory of the zoo."""
    with tempfile.TemporaryDirectory() as temporary, threadpool_limits(1):
        folder = Path(temporary)
        raw = known_clips(signal=0.12, length=23)
        films = {HARD: [ALL]}
        for name, tasks, cv, share in (
            ("16 MLPs that stop early", TABLE_2, PapersText(), 4),
            ("leave-film-out, 132 MLPs", films, FILMS, 10),
        ):
            yield from _mlps(folder / name, name, make_plan(raw, tasks, cv), share)
        yield from _svms(known_clips(signal=0.12, length=1))
        yield _loop()
        yield _many(folder / "many")


def make_plan(data: om.ClipDataset, tasks: Any, cv: Any) -> Plan:
    """Plan MLPs for some tasks, each with its tests."""
    return Plan(
        name="MLPs",
        models={"mlp": Learner(om.make_estimator("mlp"), "mlp")},
        data=data.with_tasks([EASY, HARD, ALL]),
        tasks=tasks,
        cv=cv,
        protocol="",
    )


def _mlps(folder: Path, name: str, plan: Plan, share: int) -> Iterator[Result]:
    """Train all our models from a store, and one in `share` of each peer's models."""
    known = plan.data
    folder.mkdir()
    store = make_store(folder / "s.zarr", known.ids, {"native": known.X})
    zoo_peers.save_clips(folder / "files", known.X)
    # Run once before timing, because torch loads parts of itself at the first step.
    task = next(iter(plan.tasks))
    compute_run(replace(plan, tasks={task: plan.tasks[task]}, cv=PapersText()))
    begin = time.perf_counter()
    _, features = read_features(open_stores(store), known.ids, "native")
    run = compute_run(replace(plan, data=replace(known, X=features)))
    seconds = time.perf_counter() - begin
    epochs = sum(len(model.estimator.history_) for model in run.fitted.values())
    fits = [*plan.fits()]
    sample = [*islice(fits, share // 2, None, share)]
    label = f"{name}, {epochs / len(fits):.0f} epochs each"
    for peer, batches, target in (
        ("one file per clip, DataLoader", zoo_peers.batches_of_files(folder / "files"), 0.1),
        ("plain loop, tensors in memory", zoo_peers.batches_in_memory(known.X), 1.0),
    ):
        begin = time.perf_counter()
        peer_epochs = 0
        for fit in sample:
            fold = fit.fold
            tests = [(fold.tests[test.key], known.labels[test]) for test in plan.tasks[fit.task]]
            labels = known.labels[fit.task]
            peer_epochs += zoo_peers.fit_mlp(batches, fold.train, fold.validation, labels, tests)
        took = (time.perf_counter() - begin) * len(fits) / len(sample)
        yield Result(
            f"{label} ({peer}, {peer_epochs / len(sample):.0f} epochs; {len(sample)} of "
            f"{len(fits)}, scaled)",
            seconds, "s", took, seconds / took, target,
        )  # fmt: skip


def _svms(known: om.ClipDataset) -> Iterator[Result]:
    """Leave out each of nine folds in turn, and test on the tenth, for all concepts and C."""
    X = known.X  # noqa: N806
    targets = concept_targets(known.levels, known.concepts, "a").astype(np.int64)
    fits = []
    for fold in range(9):
        for labels in targets.T:
            takes_part = labels >= 0
            train = np.flatnonzero(takes_part & (known.folds != fold) & (known.folds != 9))
            fits.append((train, np.flatnonzero(takes_part & (known.folds == 9)), labels))
    begin = time.perf_counter()
    wide = X.astype(np.float64)
    kernel = wide @ wide.T
    ours: list[list[NDArray[np.float64]]] = []
    for train, test, labels in fits:
        weights = clip_weights("balanced", labels[train])
        products = kernel.take(train, axis=0).take(train, axis=1)
        own = [fit_svm(wide[train], labels[train], C, weights, products) for C in DEFAULT_CS]
        ours.append([fit.decide(X[test]) for fit in own])
    seconds = time.perf_counter() - begin
    begin = time.perf_counter()
    kernel = wide @ wide.T
    theirs = [list(zoo_peers.fit_kernel_svcs(kernel, *fit, DEFAULT_CS)) for fit in fits]
    plain = time.perf_counter() - begin
    sample = fits[2::6]
    begin = time.perf_counter()
    for fit in sample:
        list(zoo_peers.fit_svcs(X, *fit, DEFAULT_CS))
    authors = (time.perf_counter() - begin) * len(fits) / len(sample)
    name = "8 concepts x 9 folds x 6 C"
    yield Result(
        f"{name} (one SVC(probability=True) per fit; 1 of 6, scaled)",
        seconds, "s", authors, seconds / authors, 0.1,
    )  # fmt: skip
    yield Result(
        f"{name} (SVC on a shared kernel, without probabilities)",
        seconds, "s", plain, seconds / plain, None,
    )  # fmt: skip
    mine, peers = (np.concatenate([np.concatenate(row) for row in rows]) for rows in (ours, theirs))
    apart = float(np.abs(mine - peers).max())
    yield Result("decision values, largest difference (limit)", apart, "", 1e-5, apart / 1e-5, 1)


def _loop() -> Result:
    """Cross-validate a model with a fast fit on many clips, as our loop and scikit-learn do."""
    chance = np.random.default_rng(0)
    X = chance.standard_normal((MANY, 768), np.float32)  # noqa: N806
    y = chance.integers(0, 2, MANY)
    films = np.repeat(np.arange(50), MANY // 50)
    model = LogisticRegression(max_iter=10)
    begin = time.process_time()
    cross_val_predict(model, X, y, groups=films, cv=GroupKFold(5), method="predict_proba")
    plain = time.process_time() - begin
    begin = time.process_time()
    om.cross_validate(model, om.dataset(X, y, films), cv=GroupKFold(5)).scores()
    ours = time.process_time() - begin
    name = "100,000 x 768, 5 folds of a logistic regression (scikit-learn's loop, processor time)"
    return Result(name, ours, "s", plain, ours / plain, 3)


_MANY = """
import json, sys, time, warnings
from pathlib import Path
import numpy as np
from obygaze_models.estimators.concepts import ConceptBank
from obygaze_models.estimators.mlp import MLPProbe
warnings.simplefilter("ignore")
count = int(sys.argv[2])
chance = np.random.default_rng(0)
Y = (chance.random((count, 9)) < 0.3).astype(np.int8)
X = chance.standard_normal((count, 512), np.float32)
for column, direction in zip(Y.T, chance.standard_normal((9, 512), np.float32)):
    X[column == 1] += np.float32(0.12) * direction
X /= np.linalg.norm(X, axis=1, keepdims=True)
cut = count * 9 // 10
seconds = []
begin = time.perf_counter()
model = MLPProbe(random_state=0)
model.fit(X[:cut], Y[:cut, 8], X_val=X[cut:], y_val=Y[cut:, 8])
seconds.append(time.perf_counter() - begin)
begin = time.perf_counter()
bank = ConceptBank().fit(X[:cut], Y[:cut, :8], X_val=X[cut:], concepts_val=Y[cut:, :8])
seconds.append(time.perf_counter() - begin)
Path(sys.argv[1]).write_text(json.dumps(seconds))
"""


def _many(folder: Path) -> Result:
    """Train an MLP and eight directions in a separate process that also makes the clips."""
    folder.mkdir()
    said = folder / "said.json"
    peak = peak_mib([sys.executable, "-c", _MANY, str(said), str(MANY)])
    mlp, bank = json.loads(said.read_text())
    name = f"100,000 clips: peak memory of an MLP ({mlp:.0f} s) and 8 CAVs ({bank:.0f} s) (limit)"
    return Result(name, peak / 1024, "GiB", 4, peak / 1024 / 4, 1)
