"""Compare annotators: the agreement of all and of each pair, and the stretches where they differ.

An annotator's agreement with another annotator is a rough guide to what a model can reach, but not
a limit.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from itertools import combinations, groupby
from operator import itemgetter
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from obygaze_features.annotations.agreement_measures import (
    Distances,
    alpha,
    cohen_kappa,
    confusion,
    distances_of,
    estimate_alpha,
    measures,
    meetings,
)
from obygaze_features.annotations.merge import chosen_labels, votes_of
from obygaze_features.annotations.remarks import LEFT_OUT, Remark
from obygaze_features.common.arrays import Array
from obygaze_features.common.files import new_folder, write_text
from obygaze_features.common.formatting import join_some
from obygaze_features.common.grouping import group_by
from obygaze_features.common.tables import format_rows
from obygaze_features.errors import UsageError
from obygaze_features.items.films import film_titles
from obygaze_features.items.items import format_seconds
from obygaze_features.manifests import LabelScheme, Manifest

Row = dict[str, Any]
ABSENT = -1
TABLES = ("levels", "concepts", "films", "pairs", "pair_levels", "pair_films", "differences")
DIFFERENCES = ("film", "title", "first", "last", "clips", "seconds", "start", "end", "distance")


@dataclass(frozen=True, eq=False)
class Agreement:
    """The agreement of two or more annotators, as rows.

    Parameters
    ----------
    votes
        The annotators' levels and concepts.
    distances
        The levels, and the distances between them.
    levels, concepts
        Krippendorff's alpha of all annotators over all films: for all levels (unordered, and in
        order), for each level and for each concept. A row has the 95% interval if there are enough
        films, and for a level or concept each annotator's share of clips with it, and their mean.
    films
        For each film, the means of its pairs' measures, and alpha.
    pairs, pair_levels
        For each pair, over all films: the number of clips, the share of equal levels and kappa;
        and, for each level of `a`, the number of clips at each level of `b`.
    pair_films
        The measures of each pair in each film.
    remarks
        The films that were left out.
    """

    votes: Votes
    distances: Distances
    levels: list[Row]
    concepts: list[Row]
    films: list[Row]
    pairs: list[Row]
    pair_levels: list[Row]
    pair_films: list[Row]
    remarks: list[Remark]

    @cached_property
    def differences(self) -> list[Row]:
        """The stretches of clips on which annotators differ, longest first."""
        return find_differences(self.votes)

    @property
    def means(self) -> dict[str, float | None]:
        """The mean of each measure but `distance`, over all films and pairs where it is defined."""
        means = _mean_measures(self.pair_films, self.distances)
        del means["distance"]
        return means

    def to_json(self) -> Row:
        """Return the result as JSON values."""
        distances = {"name": self.distances.name, "matrix": self.distances.matrix.tolist()}
        return {
            "manifest": self.votes.manifest.name,
            "annotators": self.votes.names,
            "means": self.means,
            **{table: getattr(self, table) for table in TABLES},
            "distances": distances,
            "remarks": list(map(asdict, self.remarks)),
        }

    def save(self, folder: Path | str, *, overwrite: bool = False) -> None:
        """Write four tables to a folder.

        ``agreement.csv`` has a row for each level and concept, ``films.csv`` one for each film,
        ``pairs.csv`` one for each pair (over all films, then in each film), and
        ``differences.csv`` one for each stretch where annotators differ.
        """
        as_csv = partial(format_rows, number=format_seconds)
        with new_folder(Path(folder), overwrite=overwrite, marker="agreement.csv") as new:
            write_text(new / "agreement.csv", as_csv([*self.levels, *self.concepts]))
            write_text(new / "films.csv", as_csv(self.films))
            write_text(new / "pairs.csv", as_csv([*self.pairs, *self.pair_films]))
            columns = [*DIFFERENCES, *("levels_of_" + name for name in self.votes.names)]
            write_text(new / "differences.csv", as_csv(self.differences, columns))


def agreement(manifest: Manifest | str | Path, names: Sequence[str] = ()) -> Agreement:
    """Compare the named label sets of a manifest (default: all annotators'; see `read_votes`)."""
    manifest = Manifest.load(manifest)
    votes = read_votes(manifest, names)
    distances = distances_of(votes.scheme)
    codes = votes.scheme.codes
    titles = film_titles(manifest.items)
    two = list(combinations(range(len(votes.names)), 2))

    pair_films = []
    films = []
    for film, rows in votes.compared.items():
        named = {"film": film, "title": titles[film]}
        of_film = []
        for a, b in two:
            counts = votes.confusion(a, b, rows)
            if counts.any():
                about = {**named, **votes.name(a, b), "clips": int(counts.sum())}
                of_film.append(about | measures(counts, distances))
        pair_films += of_film
        films.append(named | _film_measures(votes.codes[:, rows], of_film, distances))

    pairs = []
    pair_levels = []
    for a, b in two:
        counts = votes.confusion(a, b)
        clips = int(counts.sum())
        if clips:
            equal = float(np.trace(counts) / clips)
            kappa = cohen_kappa(counts)
            pairs.append({**votes.name(a, b), "clips": clips, "equal": equal, "kappa": kappa})
            for code, row in zip(codes, counts.tolist(), strict=True):
                by_level = dict(zip(codes, row, strict=True))
                pair_levels.append({**votes.name(a, b), "level_a": code, **by_level})

    return Agreement(
        votes,
        distances,
        votes.level_rows(),
        votes.concept_rows(),
        films,
        pairs,
        pair_levels,
        pair_films,
        votes.remarks(),
    )


@dataclass(frozen=True, eq=False)
class Votes:
    """The levels and concepts that each annotator gave to each clip.

    Parameters
    ----------
    manifest, names, scheme
        The manifest, the annotators, and their label scheme.
    codes
        The rank of each annotator's level of each clip [annotators, clips], or `ABSENT`.
    marks
        True where an annotator marked a concept [annotators, clips, concepts].
    films
        The rows of each film's clips, sorted by time, with clips without a span last.
    """

    manifest: Manifest
    names: list[str]
    scheme: LabelScheme
    codes: Array
    marks: Array
    films: dict[str, Array]

    @cached_property
    def compared(self) -> dict[str, Array]:
        """The films with a clip that two annotators labelled."""
        shared = (self.codes != ABSENT).sum(axis=0) > 1
        return {film: rows for film, rows in self.films.items() if shared[rows].any()}

    def name(self, a: int, b: int) -> Row:
        """Return the names of a pair, as the start of a row."""
        return {"a": self.names[a], "b": self.names[b]}

    def confusion(self, a: int, b: int, rows: Any = slice(None)) -> Array:
        """Count a pair's common clips in some rows by their two levels."""
        return confusion(self.codes[a, rows], self.codes[b, rows], len(self.scheme.codes))

    def remarks(self) -> list[Remark]:
        """Return a remark on each labelled film that cannot be compared."""
        remarks = []
        for film in self.films.keys() - self.compared.keys():
            labelled = (self.codes[:, self.films[film]] != ABSENT).any(axis=1)
            if labelled.any():
                problem = "no clip has two annotators' labels"
                remarks.append(Remark(self.manifest.name, film, "", problem, LEFT_OUT))
        return sorted(remarks, key=lambda remark: remark.film)

    def level_rows(self) -> list[Row]:
        """Return the agreement on all levels, unordered and in order, and on each level."""
        counts = self._meetings(self.codes, len(self.scheme.codes))
        rows = [
            {"marked": "all levels", "share": None} | _alpha(counts),
            {"marked": "all levels, in order", "share": None} | _alpha(counts, is_ordinal=True),
        ]
        for rank, code in enumerate(self.scheme.codes):
            rows.append(self._marked(self.scheme.name_of[code], self.codes == rank))
        return rows

    def concept_rows(self) -> list[Row]:
        """Return the agreement on each concept that anybody marked."""
        rows = []
        for concept, name in enumerate(self.scheme.concept_names):
            marks = self.marks[..., concept]
            if marks.any():
                rows.append(self._marked(name, marks))
        return rows

    def _marked(self, name: str, marks: Array) -> Row:
        present = self.codes != ABSENT
        marked = (marks & present).sum(axis=1)
        shares = marked / np.maximum(1, present.sum(axis=1))
        judged = np.where(present, marks, ABSENT)
        mean = float(shares[present.any(axis=1)].mean())
        row = {"marked": name, "share": mean} | _alpha(self._meetings(judged, 2))
        columns = ["share_of_" + who for who in self.names]
        return row | dict(zip(columns, shares.tolist(), strict=True))

    def _meetings(self, codes: Array, size: int) -> Array:
        films = [meetings(codes[:, rows], size) for rows in self.compared.values()]
        return np.reshape(films, (-1, size, size))


def read_votes(manifest: Manifest, names: Sequence[str]) -> Votes:
    """Read the label sets in `names`, in any order (default: all annotators').

    Raise `UsageError` if there are fewer than two, or if one was made by a rule or merged from
    another.
    """
    label_sets = chosen_labels(manifest, names)
    rules = [labels.name for labels in label_sets if labels.origin == "rule"]
    if rules:
        problem = "made by a rule, not by people; pass annotators' label sets"
        raise UsageError(f"{manifest.name}: {join_some(rules)}: {problem}")

    scheme = manifest.shared_scheme(label_sets)
    codes, marks = votes_of(label_sets, manifest, scheme)
    items = manifest.items
    films = {}
    for film, unordered in group_by(range(len(items)), items.span_films.__getitem__).items():
        order = np.lexsort((items.ends[unordered], items.starts[unordered]))
        films[film] = np.array(unordered)[order]
    people = [labels.display_name for labels in label_sets]
    if len({*people}) < len(people):
        people = [labels.name for labels in label_sets]
    return Votes(manifest, people, scheme, codes, marks, films)


def find_differences(votes: Votes) -> list[Row]:
    """Return every run of consecutive clips on which annotators differ, longest first.

    Runs of equal duration are ordered by number of clips, then by distance, largest first. A run
    ends at a clip that fewer than two annotators labelled, at a clip on which all agree, or at a
    gap. Its `distance` is its clips' mean distance from the lowest to the highest level.
    """
    items = votes.manifest.items
    titles = film_titles(items)
    matrix = distances_of(votes.scheme).matrix
    runs = []
    for film, rows in votes.films.items():
        # A gap in time starts a new stretch. After a clip without an end, there is no gap.
        latest_ends = np.maximum.accumulate(items.ends[rows])
        gaps = items.starts[rows][1:] > latest_ends[:-1]
        stretches = np.append(0, np.cumsum(gaps))
        lowest, highest = lowest_and_highest(votes.codes[:, rows])
        differing = np.flatnonzero(lowest < highest)
        is_new = (np.diff(differing) > 1) | (np.diff(stretches[differing]) > 0)
        for run_rows in np.split(differing, 1 + np.flatnonzero(is_new)):
            if not len(run_rows):
                continue
            clips = rows[run_rows]
            timed = clips[~np.isnan(items.starts[clips])]
            starts = items.starts[timed]
            ends = items.ends[timed]
            distances = matrix[lowest[run_rows], highest[run_rows]]
            run = {
                "film": film,
                "title": titles[film],
                "first": items.ids[clips[0]],
                "last": items.ids[clips[-1]],
                "clips": len(clips),
                "seconds": math.fsum(ends - starts),
                "start": min(starts.tolist(), default=None),
                "end": max(ends.tolist(), default=None),
                "distance": fmean(distances.tolist()),
            }
            for name, codes in zip(votes.names, votes.codes[:, clips], strict=True):
                # Without absent ranks, and without those that equal the one before.
                ranks = [rank for rank, _ in groupby(codes[codes != ABSENT].tolist())]
                run["levels_of_" + name] = list(map(votes.scheme.codes.__getitem__, ranks))
            runs.append(run)

    # Runs of equal size are in the order of films and times.
    runs.sort(key=lambda run: (run["film"], run["start"] or 0.0, run["first"]))
    runs.sort(key=itemgetter("seconds", "clips", "distance"), reverse=True)
    return runs


def lowest_and_highest(codes: Array) -> tuple[Array, Array]:
    """Return the lowest and the highest rank of each clip [annotators, clips]."""
    lowest = np.where(codes == ABSENT, codes.max(initial=0), codes).min(axis=0)
    return lowest, codes.max(axis=0)


def _alpha(counts: Array, *, is_ordinal: bool = False) -> Row:
    value, interval = estimate_alpha(counts, is_ordinal=is_ordinal)
    low, high = interval or (None, None)
    return {"alpha": value, "low": low, "high": high}


def _film_measures(codes: Array, pairs: Sequence[Row], distances: Distances) -> Row:
    """Return the measures of a film: the number of its annotators and clips, means and alpha."""
    present = codes != ABSENT
    counts = meetings(codes, len(distances.codes))
    return {
        "annotators": int(present.any(axis=1).sum()),
        "clips": int((present.sum(axis=0) > 1).sum()),
        **_mean_measures(pairs, distances),
        "alpha_nominal": alpha(counts),
        "alpha_ordinal": alpha(counts, is_ordinal=True),
    }


def _mean_measures(rows: Sequence[Row], distances: Distances) -> dict[str, float | None]:
    """Return the mean of each measure over the rows where it is defined."""
    means = {}
    for name in measures(np.zeros_like(distances.matrix), distances):
        values = [row[name] for row in rows if row[name] is not None]
        means[name] = fmean(values) if values else None
    return means
