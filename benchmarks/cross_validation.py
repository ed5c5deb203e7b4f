"""Coverage of intervals over films where each film is left out in turn.

Films are drawn from worlds in which nothing, a little or much can be learned. The clips
of each film are ranked by a linear model of the other films (ridge regression). In 95% of draws,
the interval should contain the mean AUROC over all draws of a world. The peer is the t interval for
independent scores.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy import stats

from benchmarks.result import Result
from obygaze_features.common.arrays import Array
from obygaze_models.scoring.intervals import LEVEL, variance_factor
from obygaze_models.scoring.metrics import auroc

WORLDS = {"nothing to learn": 0.0, "a little": 0.15, "a lot": 0.5}
"""The amount by which the first three features are higher in positive clips."""
FILMS = (5, 8, 12, 20)
FEATURES = (5, 20, 80)
CLIPS, SHARE, DRAWS = 40, 0.3, 1500
LEAST, MOST = 92.0, 99.5
"""The bounds of the coverage in percent. Where much is learned, intervals are conservative."""


def score_films(chance: np.random.Generator, films: int, features: int, effect: float) -> Array:
    """Return the AUROC of each film by a model trained on all others."""
    labels = np.zeros((films, CLIPS))
    labels[:, : round(SHARE * CLIPS)] = 1
    weights = np.zeros(features)
    weights[:3] = effect
    own_weights = weights + 0.5 * effect * chance.normal(size=(films, features))
    clips = chance.normal(size=(films, CLIPS, features))
    clips += labels[..., None] * own_weights[:, None, :]
    clips += 0.3 * chance.normal(size=(films, 1, features))
    scores = []
    for film in range(films):
        others = np.arange(films) != film
        train, targets = clips[others].reshape(-1, features), labels[others].ravel() - SHARE
        train = train - train.mean(axis=0)
        model = np.linalg.solve(train.T @ train + 10 * np.eye(features), train.T @ targets)
        scores.append(auroc(labels[film].astype(int), clips[film] @ model))
    return np.array(scores, dtype=float)


def coverage(scores: Array, *, cross_validated: bool) -> float:
    """Return the percentage of draws [draws, films] whose interval contains the overall mean."""
    films = scores.shape[1]
    factor = variance_factor(films) if cross_validated else 1.0
    error = stats.sem(scores, axis=1) * factor**0.5
    low, high = stats.t.interval(LEVEL, films - 1, scores.mean(axis=1), error)
    truth = scores.mean()
    return 100 * float(((low <= truth) & (truth <= high)).mean())


def measure() -> Iterator[Result]:
    """Measure the lowest and the highest coverage over the numbers of features."""
    for world, effect in WORLDS.items():
        for films in FILMS:
            ours, plain = [], []
            for features in FEATURES:
                chance = np.random.default_rng([films, features])
                drawn = [score_films(chance, films, features, effect) for _ in range(DRAWS)]
                ours.append(coverage(np.stack(drawn), cross_validated=True))
                plain.append(coverage(np.stack(drawn), cross_validated=False))
            missed = max((100 - min(ours)) / (100 - LEAST), max(ours) / MOST)
            title = f"{world}, {films} films: least coverage (plain t)"
            yield Result(title, min(ours), "%", min(plain), missed, 1.0)
