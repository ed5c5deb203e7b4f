"""Coverage of the intervals within films and across films, in worlds whose truth is known.

Each film has its own shift and its own direction from negative to positive clips. Most films are
short; in all, half, a few or none of them are clips of both classes. A linear discriminant (the
closed form of a balanced logistic regression) is trained on whole films and rates the others. The
true scores of its fits, on new films of the same world, follow from normal distributions.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from scipy import stats
from sklearn.model_selection import StratifiedGroupKFold

from benchmarks.result import Result
from obygaze_features.common.arrays import Array
from obygaze_models.scoring.intervals import (
    Estimate,
    ScoredClips,
    estimate_scores,
    estimate_weighted,
    score_groups,
)
from obygaze_models.scoring.metrics import CLASSES, auroc
from obygaze_models.scoring.number_scores import NUMBER

FEATURES, INFORMATIVE = 10, 4
SHIFT, TURN = 0.5, 0.3
"""The standard deviations of a film's shift, and of its own direction, in each feature."""
SHARE = 0.35
"""The share of positive films, and about that of positive clips."""
SIGNALS = (0.0, 0.3, 0.9)
"""How much higher positive clips are in each informative feature: nothing, a little or a lot."""
MIXED = {"all": 1.0, "half": 0.5, "few": 0.11, "none": 0.0}
"""The share of films with clips of both classes."""
PROTOCOLS = {"5 folds": 5, "10 folds": 10, "fixed split": 1}
DRAWS, MAX_TRIED = 250, 1000
"""The number of draws with an interval, and of all draws."""
POOLED_DRAWS = 100
LOWEST = 92.0
"""The bound of the coverage in percent, for folds of 20 films or more."""
MIN_DEFINED = 80
"""The minimum number of draws with an interval of a printed line."""
NEW_FILMS, NEW_CLIPS = 600, 6
"""The size of the simulated population of a world whose truth has no closed form."""
Coverages = dict[str, list[bool]]
Truths = dict[str, tuple[Estimate, float]]
"""The estimate and the truth of each score."""


@dataclass(frozen=True, eq=False)
class Films:
    """Clips of films: features [N, 10], the class or number of each clip, and its film."""

    features: Array
    labels: Array
    films: Array


class Cell(NamedTuple):
    """A world with its protocol, and the function that draws its films and scores them."""

    title: str
    films: int
    folds: int
    draw: Callable[[np.random.Generator, float], Truths]


def film_sizes(chance: np.random.Generator, count: int) -> Array:
    """Return the numbers of clips of films: half have 8 or fewer, and the longest 80."""
    sizes = np.exp(chance.normal(np.log(8), 0.9, count))
    return np.clip(sizes, 2, 80).astype(int)


def draw_labels(chance: np.random.Generator, count: int, mixed: str) -> tuple[Array, Array]:
    """Return the class and the film of each clip. Two films or more have clips of each class."""
    both = round(MIXED[mixed] * count)
    while True:
        sizes = film_sizes(chance, count)
        labels = []
        for film, size in enumerate(sizes.tolist()):
            if film < both:
                log_odds = np.log(SHARE / (1 - SHARE)) + 0.6 * chance.normal()
                own = (chance.random(size) < 1 / (1 + np.exp(-log_odds))).astype(int)
                own[:2] = 1, 0
            else:
                own = np.full(size, int(chance.random() < SHARE))
            labels.append(own)
        films_with = [sum((own == code).any() for own in labels) for code in (0, 1)]
        if min(films_with) >= 2:
            return np.concatenate(labels), np.repeat(np.arange(count), sizes)


def population_share(mixed: str, count: int) -> float:
    """Return the share of positive clips in a world."""
    chance = np.random.default_rng(11)
    labels = [draw_labels(chance, count, mixed)[0] for _ in range(4000 // count)]
    return float(np.concatenate(labels).mean())


def direction(signal: float) -> Array:
    """Return the mean direction from negative to positive clips."""
    return np.where(np.arange(FEATURES) < INFORMATIVE, signal, 0.0)


def add_features(
    chance: np.random.Generator, labels: Array, films: Array, directions: Array
) -> Films:
    """Return clips with features, for the direction [K, 10] of each column of the labels."""
    count = int(films.max()) + 1
    columns = labels.reshape(len(labels), -1)
    features = SHIFT * chance.normal(size=(count, FEATURES))[films]
    for column, toward in zip(columns.T, directions, strict=True):
        own = toward + TURN * chance.normal(size=(count, FEATURES))
        features += column[:, None] * own[films]
    features += chance.normal(size=features.shape)
    return Films(features, labels, films)


def discriminant(train: Films) -> tuple[Array, Array]:
    """Return the weights [10, K] and offsets [K] of balanced linear discriminants of K classes."""
    means, scatter = [], np.zeros((FEATURES, FEATURES))
    for code in np.unique(train.labels):
        own = train.features[train.labels == code]
        means.append(own.mean(axis=0))
        scatter += (own - means[-1]).T @ (own - means[-1])
    covariance = scatter / len(train.labels) + 0.1 * np.eye(FEATURES)
    weights = np.linalg.solve(covariance, np.array(means).T)
    return weights, -(weights * np.array(means).T).sum(axis=0) / 2


def fold_of_each(chance: np.random.Generator, clips: Films, folds: int, classes: Array) -> Array:
    """Return the fold of each clip: whole films, with the classes spread about evenly."""
    splitter = StratifiedGroupKFold(folds, shuffle=True, random_state=int(chance.integers(2**31)))
    fold = np.zeros(len(classes), int)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a class may have fewer clips than there are folds
        for number, (_, rows) in enumerate(splitter.split(classes, classes, clips.films)):
            fold[rows] = number
    return fold


def parts_of(clips: Films, fold: Array, folds: int) -> Iterator[tuple[Films, Array]]:
    """Yield the training clips of each fit, and its test rows."""
    for number in range(folds):
        keep = fold != number
        train = Films(clips.features[keep], clips.labels[keep], clips.films[keep])
        yield train, np.flatnonzero(~keep)


def true_scores(weights: Array, offset: float, toward: Array, share: float) -> dict[str, float]:
    """Return a fit's scores on clips of new films."""
    mean = weights @ toward
    norm = np.linalg.norm(weights) + 1e-12
    high = norm * np.sqrt(1 + SHIFT**2 + TURN**2)
    low = norm * np.sqrt(1 + SHIFT**2)
    hits = share * stats.norm.cdf((mean + offset) / high)
    alarms = (1 - share) * stats.norm.cdf(offset / low)
    points = np.linspace(-5, 5, 401)  # thresholds at quantiles of the positive clips
    recall = share * stats.norm.sf(points)
    false = (1 - share) * stats.norm.sf((mean + high * points) / low)
    mass = stats.norm.pdf(points)
    return {
        "AUROC within": float(stats.norm.cdf(mean / norm / np.sqrt(2 + TURN**2))),
        "AUROC across": float(stats.norm.cdf(mean / norm / np.sqrt(2 + 2 * SHIFT**2 + TURN**2))),
        "F1 across": float(2 * hits / (share + hits + alarms)),
        "AP across": float((recall / (recall + false) * mass).sum() / mass.sum()),
    }


def two_classes(
    count: int,
    mixed: str,
    folds: int,
    share: float,
    chance: np.random.Generator,
    signal: float,
) -> Truths:
    """Return the estimates of a draw of films, and the truth, by score."""
    toward = direction(signal)
    tested = add_features(chance, *draw_labels(chance, count, mixed), toward[None])
    fits = [(tested, np.arange(len(tested.labels)))]
    if folds == 1:
        trained = add_features(chance, *draw_labels(chance, count, mixed), toward[None])
        fits = [(trained, fits[0][1])]
    else:
        fold = fold_of_each(chance, tested, folds, tested.labels)
        fits = [*parts_of(tested, fold, folds)]
    log_odds = np.zeros(len(tested.labels))
    numbers = np.zeros(len(tested.labels), int)
    truths = []
    for number, (train, rows) in enumerate(fits):
        if len(np.unique(train.labels)) < 2:
            return {}
        pair, offsets = discriminant(train)
        weights, offset = pair[:, 1] - pair[:, 0], float(offsets[1] - offsets[0])
        log_odds[rows] = tested.features[rows] @ weights + offset
        numbers[rows] = number
        truths.append(true_scores(weights, offset, toward, share))
    probabilities = 1 / (1 + np.exp(-log_odds))
    scored = score_groups(to_clips(tested, probabilities, numbers, CLASSES))
    within, across = estimate_scores(scored)
    estimates = {"AUROC across": across["auroc"], "F1 across": across["f1"]}
    if within:
        estimates["AUROC within"] = within["auroc"]
    if folds == 1:  # obygaze prints no such interval
        effective = scored.clips.effective_groups
        values = scored.across["average_precision"]
        estimates["AP across"] = estimate_weighted(values, effective=effective)
    truth = {key: np.mean([own[key] for own in truths]) for key in truths[0]}
    return {key: (estimate, float(truth[key])) for key, estimate in estimates.items()}


def to_clips(tested: Films, predictions: Array, fits: Array, target_key: str) -> ScoredClips:
    """Return predictions on drawn films as obygaze scores them."""
    classes = int(tested.labels.max()) + 1
    if predictions.ndim == 1 and target_key == NUMBER:
        classes = 1
    return ScoredClips(
        ids=[*map(str, range(len(tested.labels)))],
        labels=tested.labels,
        probabilities=predictions,
        groups=[f"{film:03}" for film in tested.films.tolist()],
        classes=classes,
        target_key=target_key,
        fits=fits,
    )


def three_classes(count: int, folds: int, chance: np.random.Generator, signal: float) -> Truths:
    """Return the estimate and the truth of the AUROC across films for three classes."""
    directions = 2 * signal * np.eye(3, FEATURES)
    films = np.repeat(np.arange(count), film_sizes(chance, count) + 4)
    tested = add_classes(chance, chance.integers(0, 3, len(films)), films, directions)
    new_films = np.repeat(np.arange(NEW_FILMS), NEW_CLIPS)
    classes = np.tile(np.arange(3), NEW_FILMS * NEW_CLIPS // 3)
    new = add_classes(np.random.default_rng(12), classes, new_films, directions)
    fold = fold_of_each(chance, tested, folds, tested.labels)
    probabilities = np.zeros((len(films), 3))
    truths = []
    for train, rows in parts_of(tested, fold, folds):
        weights, offsets = discriminant(train)
        probabilities[rows] = softmax(tested.features[rows] @ weights + offsets)
        ratings = softmax(new.features @ weights + offsets)
        areas = [auroc((classes == code).astype(int), ratings[:, code]) for code in range(3)]
        truths.append(np.mean(np.array(areas, dtype=float)))
    scored = score_groups(to_clips(tested, probabilities, fold, CLASSES))
    return {"AUROC across": (estimate_scores(scored).across["auroc"], float(np.mean(truths)))}


def add_classes(
    chance: np.random.Generator, labels: Array, films: Array, directions: Array
) -> Films:
    """Return clips of several classes with features."""
    clips = add_features(chance, np.eye(len(directions))[labels], films, directions)
    return Films(clips.features, labels, films)


def softmax(log_odds: Array) -> Array:
    """Return the probabilities of classes."""
    powers = np.exp(log_odds - log_odds.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def numbers(
    count: int, folds: int, curve: Array, chance: np.random.Generator, signal: float
) -> Truths:
    """Return the estimates and the truth of Spearman within films and R2 across films."""
    toward = direction(signal)
    tested = draw_numbers(chance, count, toward)
    fold = fold_of_each(chance, tested, folds, (tested.labels > 0).astype(int))
    predictions = np.zeros(len(tested.labels))
    spearmans, r2s = [], []
    variance = 1 + SHIFT**2
    for train, rows in parts_of(tested, fold, folds):
        mean, middle = train.features.mean(axis=0), float(train.labels.mean())
        centred = train.features - mean
        square = centred.T @ centred + 10 * np.eye(FEATURES)
        weights = np.linalg.solve(square, centred.T @ (train.labels - middle))
        offset = middle - mean @ weights
        predictions[rows] = tested.features[rows] @ weights + offset
        norm = np.linalg.norm(weights)
        spearmans.append(np.interp(weights @ toward / norm, *curve))
        error = offset**2 + (1 + SHIFT**2) * norm**2
        error += variance * ((1 - weights @ toward) ** 2 + TURN**2 * norm**2)
        r2s.append(1 - error / variance)
    within, across = estimate_scores(score_groups(to_clips(tested, predictions, fold, NUMBER)))
    return {
        "Spearman within": (within["spearman"], float(np.mean(spearmans))),
        "R2 across": (across["r2"], float(np.mean(r2s))),
    }


def draw_numbers(chance: np.random.Generator, count: int, toward: Array) -> Films:
    """Return films whose clips have a number each, and a level of their own."""
    films = np.repeat(np.arange(count), film_sizes(chance, count) + 4)
    labels = SHIFT * chance.normal(size=count)[films] + chance.normal(size=len(films))
    return add_features(chance, labels, films, toward[None])


def spearman_curve() -> Array:
    """Return the mean Spearman within new films by the slope of ratings of unit noise [2, S]."""
    chance = np.random.default_rng(13)
    slopes = np.linspace(-1.2, 3.0, 22)
    curve = []
    for slope in slopes.tolist():
        values = []
        for size in (film_sizes(chance, NEW_FILMS) + 4).tolist():
            own = chance.normal(size=size)  # a film's level and shift change no rank
            level = SHIFT * chance.normal()
            ratings = (own + level) * (slope + TURN * chance.normal()) + chance.normal(size=size)
            order = np.argsort(np.argsort(own)), np.argsort(np.argsort(ratings))
            values.append(np.corrcoef(*order)[0, 1])
        curve.append(np.mean(values))
    return np.array([slopes, curve])


def cover(cell: Cell) -> tuple[int, Coverages]:
    """Return the number of draws, and for each score whether each interval contains the truth.

    Draws without an interval are not counted. The signals take turns.
    """
    chance = np.random.default_rng([cell.films, cell.folds, len(cell.title)])
    held: Coverages = defaultdict(list)
    tried = 0
    while tried < MAX_TRIED and len(held["AUROC across"] or held["R2 across"]) < DRAWS:
        signal = SIGNALS[tried % len(SIGNALS)]
        tried += 1
        for key, (estimate, truth) in cell.draw(chance, signal).items():
            if estimate.interval:
                low, high = estimate.interval
                held[key].append(bool(low <= truth <= high))
    return tried, {key: draws for key, draws in held.items() if len(draws) >= MIN_DEFINED}


def cells() -> Iterator[Cell]:
    """Yield the cells whose coverage is measured."""
    for count in (8, 20, 45):
        for mixed in MIXED:
            if count == 8 and mixed != "all":  # these films weigh like fewer than five
                continue
            share = population_share(mixed, count)
            for protocol, folds in PROTOCOLS.items():
                if folds <= count:
                    title = f"{count} films, {mixed} mixed, {protocol}"
                    draw = partial(two_classes, count, mixed, folds, share)
                    yield Cell(title, count, folds, draw)
    yield Cell("20 films, three classes, 5 folds", 20, 5, partial(three_classes, 20, 5))
    curve = spearman_curve()
    yield Cell("20 films, numbers, 5 folds", 20, 5, partial(numbers, 20, 5, curve))


def pooled_guesses(folds: int, count: int = 45) -> float:
    """Return the mean AUROC, pooled over fits, of fits that only know the share of positives."""
    chance = np.random.default_rng(14)
    areas = []
    for _ in range(POOLED_DRAWS):
        labels, films = draw_labels(chance, count, "none")
        fold = films
        if folds < count:
            fold = fold_of_each(chance, Films(np.empty(0), labels, films), folds, labels)
        shares = [labels[fold != number].mean() for number in range(folds)]
        areas.append(auroc(labels, np.array(shares)[fold]))
    return float(np.mean(np.array(areas, dtype=float)))


def measure() -> Iterator[Result]:
    """Yield what pooling over fits does to AUROC, and the coverage of each score in each cell."""
    for folds in (45, 10, 5):
        title = f"nothing to learn, 45 films, none mixed, {folds} folds: AUROC pooled (truth)"
        pooled = pooled_guesses(folds)
        yield Result(title, pooled, "", 0.5, pooled / 0.5, None)
    every = [*cells()]
    with ProcessPoolExecutor() as pool:
        for cell, (tried, held) in zip(every, pool.map(cover, every), strict=True):
            for key, draws in held.items():
                yield _line(cell, key, draws, tried)


def _line(cell: Cell, key: str, draws: list[bool], tried: int) -> Result:
    """Return the coverage of a score; the bound is for folds of 20 films or more."""
    covered = 100 * float(np.mean(draws))
    is_bound = cell.folds > 1 and cell.films >= 20
    return Result(
        f"{cell.title}, {key}: coverage (draws with an interval)",
        covered,
        "%",
        100 * len(draws) / tried,
        (100 - covered) / (100 - LOWEST),
        1.0 if is_bound else None,
    )
