"""The zoo on 1,048 clips x 512, compared with code written without a zoo, and the zoo's memory.

Both sides run on one thread; the peer is not faster with two. If a peer takes minutes, a stated
share of its fits is run, spread evenly, and the time is scaled.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks import zoo_peers
from benchmarks.clips import known_clips
from benchmarks.memory import peak_mib
from benchmarks.result import Result
from benchmarks.store import make_store
from obygaze_models.data.dataset import ClipDataset
from obygaze_models.data.folds import Fold
from obygaze_models.data.protocols import PROTOCOLS, Clips
from obygaze_models.data.stores import open_stores, read_features
from obygaze_models.data.targets import concept_targets
from obygaze_models.data.tasks import Problem, two_classes
from obygaze_models.estimators.svm_solver import DEFAULT_CS, clip_weights, fit_svm
from obygaze_models.experiments.experiment import Experiment, Learner
from obygaze_models.experiments.fit import Fit, FitMemo, fit_planned
from obygaze_models.experiments.plan import Division, Plan, PlannedFit

EASY, HARD, ALL = (two_classes({}, ["S"], levels) for levels in (["EN"], ["HN"], ["EN", "HN"]))
TABLE_2 = (Problem(EASY, (EASY, ALL)), Problem(HARD, (EASY, ALL)))
MANY = 100_000


def measure() -> Iterator[Result]:
    """Measure the promised speed and memory of the zoo."""
    with tempfile.TemporaryDirectory() as temporary, threadpool_limits(1):
        folder = Path(temporary)
        raw = known_clips(signal=0.12, length=23)
        yield from _mlps(
            folder / "mlps", "16 MLPs that stop early", raw, TABLE_2, paper_folds(raw), 4
        )
        yield from _films(folder / "films", raw)
        yield from _svms(known_clips(signal=0.12, length=1))
        yield _many(folder / "many")


def paper_folds(known: ClipDataset) -> Callable[[Problem], Sequence[Fold]]:
    """Return a function that makes the folds of a problem, as in the paper."""

    def make_folds(problem: Problem) -> Sequence[Fold]:
        labels = problem.train.labels(known)
        tests = {task.key: task.labels(known) for task in problem.tests}
        clips = Clips(y=labels, folds=known.folds, last=9)
        return PROTOCOLS["paper"].make_folds(clips, tests)

    return make_folds


class Fitted(NamedTuple):
    """A planned fit, its result, and the predictions for its test rows."""

    planned: PlannedFit
    fit: Fit
    table: NDArray[Any]


def fit_all(
    name: str,
    data: ClipDataset,
    problems: Sequence[Problem],
    make_folds: Callable[[Problem], Sequence[Fold]],
) -> list[Fitted]:
    """Fit and test an estimator in every fold of every problem, like a run."""
    memo, learner = FitMemo(), Learner(name)
    experiment = Experiment(name=name, manifest="none", store="none", estimators=(name,))
    nothing: Any = None
    division = Division("paper")
    tasks = [task for problem in problems for task in (problem.train, *problem.tests)]
    plan = Plan(experiment, nothing, nothing, [*problems], division, data, tasks, nothing, nothing)
    results = []
    for problem in problems:
        for fold in make_folds(problem):
            planned = PlannedFit(name, learner, problem, fold)
            fit = fit_planned(plan, planned, memo)
            results.append(Fitted(planned, fit, fit.predict(data, fold.test_rows)))
    return results


def _films(folder: Path, known: ClipDataset) -> Iterator[Result]:
    """Test each film, and validate on each other film."""
    problem = Problem(HARD, (ALL,))

    def make_folds(problem: Problem) -> Sequence[Fold]:
        labels = problem.train.labels(known)
        tests = {task.key: task.labels(known) for task in problem.tests}
        clips = Clips(y=labels, groups=known.groups)
        return PROTOCOLS["leave-film-out"].make_folds(clips, tests, "none")

    count = len(make_folds(problem))
    yield from _mlps(folder, f"leave-film-out, {count} MLPs", known, [problem], make_folds, 10)


def _mlps(
    folder: Path,
    name: str,
    known: ClipDataset,
    problems: Sequence[Problem],
    make_folds: Callable[[Problem], Sequence[Fold]],
    share: int,
) -> Iterator[Result]:
    """Train all our models from a store, and one in `share` of each peer's models."""
    folder.mkdir()
    store = make_store(folder / "s.zarr", known.ids, {"native": known.X})
    zoo_peers.save_clips(folder / "files", known.X)

    def ours() -> list[Fitted]:
        _, features = read_features(open_stores(store), known.ids, "native")
        return fit_all("mlp", replace(known, X=features), problems, make_folds)

    # Run once before timing, because torch loads parts of itself at the first step.
    fit_all("mlp", known, problems[:1], lambda problem: make_folds(problem)[:1])
    begin = time.perf_counter()
    results = ours()
    seconds = time.perf_counter() - begin
    epochs = sum(len(result.fit.estimator.history_) for result in results)
    fits = [(result.planned.problem, result.planned.fold) for result in results]
    sample = fits[share // 2 :: share]
    label = f"{name}, {epochs / len(fits):.0f} epochs each"
    for peer, batches, target in (
        ("one file per clip, DataLoader", zoo_peers.batches_of_files(folder / "files"), 0.1),
        ("plain loop, tensors in memory", zoo_peers.batches_in_memory(known.X), 1.0),
    ):
        begin = time.perf_counter()
        peer_epochs = 0
        for problem, fold in sample:
            tests = [(fold.tests[task.key], task.labels(known)) for task in problem.tests]
            labels = problem.train.labels(known)
            peer_epochs += zoo_peers.fit_mlp(batches, fold.train, fold.validation, labels, tests)
        took = (time.perf_counter() - begin) * len(fits) / len(sample)
        yield Result(
            f"{label} ({peer}, {peer_epochs / len(sample):.0f} epochs; {len(sample)} of "
            f"{len(fits)}, scaled)",
            seconds, "s", took, seconds / took, target,
        )  # fmt: skip


def _svms(known: ClipDataset) -> Iterator[Result]:
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
