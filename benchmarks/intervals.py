"""Real coverage of 95% intervals over films, and how often noise is called a finding.

Films are drawn from worlds whose truth is known: a thousand or more films, each with its own share
of positive clips, difficulty and offset. A draw of a few films gives an interval, which should
contain the mean over all films of its world in 95% of draws. The peer is the percentile bootstrap
over films (scipy), which most tools use. `benchmarks/questions.py` draws the films of whole data
sets, and trains on some of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from benchmarks import questions
from benchmarks.result import Result
from obygaze_features.annotations.agreement_measures import cohen_kappas
from obygaze_models.scoring.intervals import (
    LEVEL,
    MIN_OF_CLASS,
    MIN_SHARE,
    ScoredClips,
    estimate_mean,
    estimate_weighted,
    holm,
    weigh_groups,
)
from obygaze_models.scoring.metrics import METRICS, score

Array = NDArray[Any]
LENGTHS = {
    "ObyGaze12": (97, 105, 122, 139, 148, 152, 158, 166, 184, 199, 212, 232),
    "MObyGaze": (95, 101, 107, 112, 118, 121, 124, 126, 129, 133, 139, 151, 164, 181, 194),
    "five short films": (20, 30, 40, 60, 120),
}
"""The numbers of clips in the films of each world: similar, or very different."""
SHARES = (0.05, 0.1, 0.15, 0.3, 0.5)
FEW, MANY = (5, 6, 7), (8, 12, 20, 50)
FILMS = (*FEW, *MANY)
POPULATION, DRAWS, BOOTSTRAPPED = 1500, 4000, 400
LOWEST_OF_FEW, LOWEST, HIGHEST = 90.0, 92.0, 98.0
"""The bounds of the coverage in percent: the lower ones for few and many films, and the upper."""
RUNS = 2000
DISTANCES = np.array([[0, 0.3, 0.7, 1], [0.3, 0, 0.4, 0.7], [0.7, 0.4, 0, 0.3], [1, 0.7, 0.3, 0]])
"""The paper's distances between levels."""
PICTURE = Path(__file__).parents[1] / "docs/intervals.svg"


def make_films(
    lengths: tuple[int, ...], share: float, *, gain: float, count: int, seed: int
) -> ScoredClips:
    """Return films whose positive clips score higher by about `gain`, which varies by film."""
    chance = np.random.default_rng(seed)
    labels, probabilities, films = [], [], []
    for film in range(count):
        clips = chance.choice(lengths)
        log_odds = np.log(share / (1 - share)) + 0.6 * chance.normal()
        positive = (chance.random(clips) < 1 / (1 + np.exp(-log_odds))).astype(np.int64)
        own_gain = chance.normal(gain, 0.35) if gain else 0.0
        scores = own_gain * positive + chance.normal(0, 0.5) + chance.normal(size=clips)
        labels.append(positive)
        probabilities.append(1 / (1 + np.exp(-1.2 * (scores - gain / 2))))
        films += [f"{film:05}"] * clips
    ids = [f"{film}-{clip}" for clip, film in enumerate(films)]
    return ScoredClips(ids, np.concatenate(labels), np.concatenate(probabilities), films)


def score_films(clips: ScoredClips) -> pd.DataFrame:
    """Return the scores of each film that is scored within films."""
    films = np.asarray(clips.groups)
    starts = np.flatnonzero(np.append(True, films[1:] != films[:-1]))
    rows = {}
    for film in np.split(np.arange(len(films)), starts[1:]):
        if np.bincount(clips.labels[film], minlength=2).min() >= MIN_OF_CLASS:
            rows[films[film[0]]] = score(clips.labels[film], clips.probabilities[film])
    return pd.DataFrame.from_dict(rows, orient="index", dtype=np.float64)


def coverage(values: Array, films: int, *, seed: int = 0) -> float:
    """Return the percentage of draws whose t interval contains the mean of all values."""
    drawn = np.random.default_rng(seed).choice(values, (DRAWS, films))
    error = stats.sem(drawn, axis=1)
    low, high = stats.t.interval(LEVEL, films - 1, drawn.mean(axis=1), error)
    return 100 * float(((low <= values.mean()) & (values.mean() <= high)).mean())


def bootstrap_coverage(values: Array, films: int, *, seed: int = 0) -> float:
    """Return the percentage of draws whose percentile bootstrap interval contains the mean."""
    drawn = np.random.default_rng(seed).choice(values, (BOOTSTRAPPED, films))
    made = stats.bootstrap(
        (drawn,), np.mean, axis=1, method="percentile", n_resamples=999, batch=50, rng=seed
    ).confidence_interval
    held = (made.low <= values.mean()) & (values.mean() <= made.high)
    return 100 * float(held.mean())


def score_worlds() -> Iterator[tuple[str, float, Mapping[str, Array]]]:
    """Yield each world's name, share and film scores; `d ` marks a difference of two models."""
    for name, lengths in LENGTHS.items():
        for share in SHARES:
            first = make_films(lengths, share, gain=0.6, count=POPULATION, seed=1)
            noise = np.random.default_rng(2).normal(0, 0.8, len(first.labels))
            log_odds = np.log(first.probabilities / (1 - first.probabilities)) + noise
            second = 1 / (1 + np.exp(-log_odds))
            other = ScoredClips(first.ids, first.labels, second, first.groups)
            scores, others = score_films(first), score_films(other)
            both = scores.join((scores - others).add_prefix("d "))
            yield name, share, {str(key): both[key].to_numpy() for key in both}


def agreement_worlds() -> Iterator[tuple[str, Array]]:
    """Yield the films of each world as tables of two annotators' levels [films, 4, 4]."""
    for name, lengths in LENGTHS.items():
        chance = np.random.default_rng(3)
        films = []
        for _ in range(POPULATION):
            shares = chance.dirichlet((8, 4, 1, 3))
            truth = chance.choice(4, chance.choice(lengths), p=shares)
            care = np.clip(chance.normal(0.6, 0.15), 0, 1)
            votes = [
                np.where(
                    chance.random(len(truth)) < care, truth, chance.choice(4, len(truth), p=shares)
                )
                for _ in range(2)
            ]
            counts = np.zeros((4, 4))
            np.add.at(counts, (votes[0], votes[1]), 1)
            films.append(counts)
        yield name, np.array(films)


def pooled_kappa_coverage(tables: Array, films: int, *, draws: int = 3000) -> float:
    """Return the percentage of draws whose jackknife interval contains the pooled kappa."""
    truth = cohen_kappas(tables.sum(axis=0)[None])[0]
    chance, held = np.random.default_rng(4), 0
    for _ in range(draws):
        drawn = tables[chance.integers(0, len(tables), films)]
        pooled = np.einsum("df,fij->dij", weigh_groups(films)[:, :films], drawn)
        low, high = estimate_weighted(cohen_kappas(pooled)).interval or (1.0, 0.0)
        held += low <= truth <= high
    return 100 * held / draws


def bootstrap_kappa_coverage(tables: Array, films: int) -> float:
    """Return the percentage of draws whose bootstrap interval contains the pooled kappa."""
    truth = cohen_kappas(tables.sum(axis=0)[None])[0]
    chance, held = np.random.default_rng(4), 0
    for _ in range(BOOTSTRAPPED):
        drawn = tables[chance.integers(0, len(tables), films)]
        weights = chance.multinomial(films, np.full(films, 1 / films), size=999)
        kappas = cohen_kappas(np.einsum("df,fij->dij", weights, drawn))
        low, high = np.quantile(kappas, [0.025, 0.975])
        held += low <= truth <= high
    return 100 * held / BOOTSTRAPPED


def gammas(tables: Array) -> Array:
    """Return the paper's gamma of each film, with chance computed in closed form."""
    total = tables.sum(axis=(1, 2))
    shares = tables / total[:, None, None]
    by_chance = shares.sum(axis=2)[:, :, None] * shares.sum(axis=1)[:, None, :]
    ratio = (shares * DISTANCES).sum(axis=(1, 2)) / (by_chance * DISTANCES).sum(axis=(1, 2))
    return np.asarray(1 - ratio)


def false_claims(models: int, films: int = 12) -> tuple[float, float, float]:
    """Return the percentage of runs in which noise ranks "better than chance".

    This is measured for the model named before the test; for any model, by p values adjusted by
    Holm; and for the highest-ranked model, by the percentile bootstrap.
    """
    noise = make_films(LENGTHS["ObyGaze12"], 0.3, gain=0.0, count=POPULATION, seed=5)
    areas = score_films(noise)["auroc"].to_numpy()
    chance = np.random.default_rng(6)
    named = adjusted = best = 0
    for _ in range(RUNS):
        drawn = chance.choice(areas, (models, films))
        low, _ = estimate_mean(drawn[0]).interval or (0.0, 1.0)
        named += low > 0.5
        estimates = [estimate_mean(own - 0.5) for own in drawn]
        p_values = holm([estimate.p_value for estimate in estimates])
        adjusted += any(
            (p or 0.0) < 0.05 and (estimate.value or 0.0) > 0
            for p, estimate in zip(p_values, estimates, strict=True)
        )
        winner = drawn[drawn.mean(axis=1).argmax()]
        draws = winner[chance.integers(0, films, (999, films))].mean(axis=1)
        best += np.quantile(draws, 0.025) > 0.5
    return 100 * named / RUNS, 100 * adjusted / RUNS, 100 * best / RUNS


def measure() -> Iterator[Result]:
    """Yield the lowest coverage by score and number of films, false claims, and both questions."""
    lowest: dict[tuple[str, int], float] = {}
    highest: dict[tuple[str, int], float] = {}
    peers: dict[tuple[str, int], float] = {}

    def note(key: str, films: int, covered: float) -> None:
        lowest[key, films] = min(covered, lowest.get((key, films), 100.0))
        highest[key, films] = max(covered, highest.get((key, films), 0.0))

    for name, share, values in score_worlds():
        for key, column in values.items():
            metric = METRICS[key.removeprefix("d ")]
            if metric.skewed and share < MIN_SHARE:
                continue
            defined = column[~np.isnan(column)]
            for films in FILMS:
                note(key, films, coverage(defined, films))
                if name == "MObyGaze" and share == 0.3:
                    peers[key, films] = bootstrap_coverage(defined, films)
    for name, tables in agreement_worlds():
        kappas = cohen_kappas(tables)
        for films in FILMS:
            note("kappa", films, coverage(kappas, films))
            note("gamma", films, coverage(gammas(tables), films))
            note("kappa of all clips", films, pooled_kappa_coverage(tables, films))
            if name == "MObyGaze":
                peers["kappa", films] = bootstrap_coverage(kappas, films)
                peers["gamma", films] = bootstrap_coverage(gammas(tables), films)
                peers["kappa of all clips", films] = bootstrap_kappa_coverage(tables, films)
    draw_picture(lowest, highest, peers)
    for key in dict.fromkeys(key for key, _ in lowest):
        for sizes, bound in ((FEW, LOWEST_OF_FEW), (MANY, LOWEST)):
            least = min(lowest[key, films] for films in sizes)
            most = max(highest[key, films] for films in sizes)
            peer = min(peers[key, films] for films in sizes)
            missed = max((100 - least) / (100 - bound), most / HIGHEST)
            title = f"{key}, {sizes[0]} to {sizes[-1]} films: least coverage (bootstrap)"
            yield Result(title, float(least), "%", float(peer), float(missed), 1.0)
    for models in (1, 5, 10):
        named, adjusted, best = false_claims(models)
        for what, rate in (("the one named before", named), ("any, by Holm", adjusted)):
            title = f"noise, {models} models: better than chance, {what} (best, bootstrap)"
            yield Result(title, float(rate), "%", float(best), float(rate) / 5, 1.0)
    yield from questions.measure()


def draw_picture(
    lowest: Mapping[tuple[str, int], float],
    highest: Mapping[tuple[str, int], float],
    peers: Mapping[tuple[str, int], float],
) -> None:
    """Draw the coverage of t intervals and of the bootstrap by number of films."""
    import matplotlib
    from matplotlib.figure import Figure

    matplotlib.rcParams["svg.hashsalt"] = "intervals"  # the same picture is the same file
    figure = Figure(figsize=(6.4, 3.4), layout="constrained")
    axes = figure.subplots()
    positions = range(len(FILMS))
    least = [min(v for (_, n), v in lowest.items() if n == films) for films in FILMS]
    most = [max(v for (_, n), v in highest.items() if n == films) for films in FILMS]
    axes.fill_between(positions, least, most, alpha=0.35, label="t interval over films")
    old = [[v for (_, n), v in peers.items() if n == films] for films in FILMS]
    label = "percentile bootstrap over films"
    axes.fill_between(positions, [*map(min, old)], [*map(max, old)], alpha=0.35, label=label)
    axes.axhline(95, color="0.2", linewidth=0.8)
    axes.set_xticks(positions, [str(films) for films in FILMS])
    axes.set_xlabel("films")
    axes.set_ylabel("covered, %")
    axes.set_ylim(74, 100)
    axes.legend(frameon=False, loc="lower right")
    figure.savefig(PICTURE, metadata={"Date": None})
