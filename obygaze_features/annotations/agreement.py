"""Compare annotators: agreement by film and by concept, and the stretches where they differ.

An annotator's agreement with another annotator is a rough guide to what a model can reach, but not
a limit.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from itertools import combinations, groupby
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from obygaze_features.annotations.agreement_measures import (
    Distances,
    cohen_kappa,
    confusion,
    distances_of,
    measures,
)
from obygaze_features.annotations.merge import chosen_labels, concept_marks
from obygaze_features.annotations.remarks import LEFT_OUT, Remark
from obygaze_features.common.files import new_folder, write_text
from obygaze_features.common.package import reference_json
from obygaze_features.common.tables import format_rows
from obygaze_features.common.text import group_by, join_some
from obygaze_features.errors import UsageError
from obygaze_features.items.films import film_titles
from obygaze_features.items.items import format_seconds
from obygaze_features.manifests import Items, LabelScheme, LabelSet, Manifest

Row = dict[str, Any]
CONCEPTS = ("film", "title", "a", "b", "concept", "kappa", "share_a", "share_b")
DIFFERENCES = (
    "film", "title", "a", "b", "first", "last", "clips", "seconds", "start", "end",
    "levels_a", "levels_b", "distance",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class Agreement:
    """The agreement of every pair of label sets, as rows.

    Parameters
    ----------
    manifest
        The manifest's name.
    distances
        The levels, and the distances between them.
    pairs, levels
        For each pair, over all films: the number of clips, the share of equal levels and kappa;
        and, for each level of `a`, the number of clips at each level of `b`.
    films
        The measures of each pair in each film.
    concepts, concepts_by_film
        For each concept that either label set gives to a clip: kappa (None if both give it to
        every clip), and the share of clips that have it in each.
    differences
        The stretches of clips on which two label sets differ, longest first.
    remarks
        The films that were left out.
    """

    manifest: str
    distances: Distances
    pairs: list[Row]
    levels: list[Row]
    films: list[Row]
    concepts: list[Row]
    concepts_by_film: list[Row]
    differences: list[Row]
    remarks: list[Remark]

    @property
    def means(self) -> dict[str, float | None]:
        """The mean of each measure but `distance`, over all films and pairs where it is defined."""
        means: dict[str, float | None] = {}
        no_clips = np.zeros_like(self.distances.matrix)
        for name in measures(no_clips, self.distances):
            values = [row[name] for row in self.films if row[name] is not None]
            means[name] = fmean(values) if values else None
        del means["distance"]
        return means

    def to_json(self) -> Row:
        """Return the result as JSON, with the means that the paper reports for its levels."""
        name = self.distances.name
        published = reference_json("published.json")["agreement"] if name == "paper" else None
        return {
            "manifest": self.manifest,
            "means": self.means,
            "published": published,
            **vars(self),
            "distances": {"name": name, "matrix": self.distances.matrix.tolist()},
            "remarks": list(map(asdict, self.remarks)),
        }

    def save(self, folder: Path | str, *, overwrite: bool = False) -> None:
        """Write three tables to a folder: agreement.csv, concepts.csv and differences.csv."""
        as_csv = partial(format_rows, number=format_seconds)
        with new_folder(Path(folder), overwrite=overwrite, marker="agreement.csv") as new:
            write_text(new / "agreement.csv", as_csv(self.films))
            concepts = [*self.concepts, *self.concepts_by_film]
            write_text(new / "concepts.csv", as_csv(concepts, CONCEPTS))
            write_text(new / "differences.csv", as_csv(self.differences, DIFFERENCES))


@dataclass(frozen=True, eq=False)
class Pair:
    """The levels of a film's clips in two label sets.

    `rows` are the rows of the film's clips in the manifest, sorted by time, with clips without a
    span last. A level is None if the label set does not include the clip.
    """

    film: str
    a: str
    b: str
    rows: Sequence[int]
    levels_a: Sequence[str | None]
    levels_b: Sequence[str | None]

    @cached_property
    def common(self) -> list[tuple[int, str, str]]:
        """The row and both levels of each clip that is in both label sets."""
        clips = zip(self.rows, self.levels_a, self.levels_b, strict=True)
        return [(row, a, b) for row, a, b in clips if a is not None and b is not None]

    def counts(self, codes: Sequence[str]) -> np.ndarray:
        """Return the number of clips for each pair of levels."""
        _, a, b = zip(*self.common, strict=True)
        return confusion(a, b, codes)


def agreement(manifest: Manifest, names: Sequence[str] = ()) -> Agreement:
    """Compare the named label sets of a manifest (default: all annotators'; see `find_pairs`)."""
    in_films, remarks = find_pairs(manifest, names)
    used = set[str]()
    for pair in in_films:
        used |= {pair.a, pair.b}
    label_sets = {name: manifest.labels(name) for name in sorted(used)}
    scheme = manifest.shared_scheme(list(label_sets.values()))
    distances = distances_of(scheme)
    titles = film_titles(manifest.items)

    films = []
    by_film = []
    total_counts: dict[tuple[str, str], Any] = defaultdict(int)
    total_concepts: dict[tuple[str, str], Any] = defaultdict(int)
    for pair in in_films:
        title = titles.get(pair.film, pair.film)
        named = {"film": pair.film, "title": title, "a": pair.a, "b": pair.b}
        counts = pair.counts(scheme.codes)
        films.append({**named, "clips": len(pair.common), **measures(counts, distances)})

        ids = [manifest.ids[row] for row, _, _ in pair.common]
        concepts = count_concepts(pair, label_sets, ids, scheme)
        by_film += _concept_rows(named, scheme.concept_names, concepts)
        total_counts[pair.a, pair.b] += counts
        total_concepts[pair.a, pair.b] += concepts

    pairs = []
    levels = []
    overall = []
    for (a, b), counts in total_counts.items():
        both = {"a": a, "b": b}
        clips = int(counts.sum())
        equal = float(np.trace(counts) / clips)
        pairs.append({**both, "clips": clips, "equal": equal, "kappa": cohen_kappa(counts)})
        for code, row in zip(scheme.codes, counts.tolist(), strict=True):
            levels.append({**both, "level_a": code, **dict(zip(scheme.codes, row, strict=True))})
        overall += _concept_rows(both, scheme.concept_names, total_concepts[a, b])

    differences = []
    for row in find_differences(in_films, manifest.items, distances):
        film = row["film"]
        differences.append({"film": film, "title": titles.get(film, film), **row})
    return Agreement(
        manifest.name, distances, pairs, levels, films, overall, by_film, differences, remarks
    )


def find_pairs(manifest: Manifest, names: Sequence[str] = ()) -> tuple[list[Pair], list[Remark]]:
    """Find pairs of label sets that share clips of a film; remark on labelled films without one.

    Parameters
    ----------
    manifest
        The clips and label sets.
    names
        The label sets, in any order (default: all annotators'). Raises `UsageError` if there are
        fewer than two, or if one was made by a rule or merged from another.
    """
    label_sets = chosen_labels(manifest, names)
    rules = [labels.name for labels in label_sets if labels.origin == "rule"]
    if rules:
        problem = "made by a rule, not by people; pass annotators' label sets"
        raise UsageError(f"{manifest.name}: {join_some(rules)}: {problem}")

    pairs = []
    remarks = []
    items = manifest.items
    for film, unordered in group_by(range(len(items)), items.span_films.__getitem__).items():
        order = np.lexsort((items.ends[unordered], items.starts[unordered]))
        rows = np.array(unordered)[order].tolist()
        ids = list(map(manifest.ids.__getitem__, rows))
        levels_of = {labels.name: list(map(labels.level_of.get, ids)) for labels in label_sets}
        present = [name for name, levels in levels_of.items() if any(levels)]
        of_film = []
        for a, b in combinations(present, 2):
            pair = Pair(film, a, b, rows, levels_of[a], levels_of[b])
            if pair.common:
                of_film.append(pair)
        pairs += of_film
        if present and not of_film:
            problem = f"no clip has two annotators' labels (labelled by {join_some(present)})"
            remarks.append(Remark(manifest.name, film, "", problem, LEFT_OUT))
    return pairs, remarks


def count_concepts(
    pair: Pair,
    label_sets: Mapping[str, LabelSet],
    ids: Sequence[str],
    scheme: LabelScheme,
) -> np.ndarray:
    """Count clips without and with each concept in `a` and in `b`, in a 2 x 2 table per concept."""
    marks = []
    for name in (pair.a, pair.b):
        concepts = map(label_sets[name].concepts_of.__getitem__, ids)
        marks.append(concept_marks(list(concepts), scheme))
    a, b = marks
    counts = np.array([[~a & ~b, ~a & b], [a & ~b, a & b]])
    return np.moveaxis(counts.sum(axis=2), -1, 0)


def _concept_rows(pair: Row, names: Sequence[str], tables: np.ndarray) -> list[Row]:
    """Return the agreement of a pair on each concept that is marked in either label set."""
    rows = []
    for name, counts in zip(names, tables, strict=True):
        clips = counts.sum()
        first = counts[1].sum()
        second = counts[:, 1].sum()
        if first or second:
            shares = {"share_a": float(first / clips), "share_b": float(second / clips)}
            rows.append({**pair, "concept": name, "kappa": cohen_kappa(counts), **shares})
    return rows


def find_differences(
    pairs: Sequence[Pair],
    items: Items,
    distances: Distances,
) -> list[dict[str, Any]]:
    """Return every run of consecutive clips on which two label sets differ, longest first.

    Runs of equal duration are ordered by number of clips, then by distance, largest first. A run
    ends at a clip that either label set lacks, at a clip on which both agree, or at a gap. Its
    `distance` is the mean over its clips.
    """
    runs = []
    for pair in pairs:
        # A gap in time starts a new stretch. After a clip without an end, there is no gap.
        latest_ends = np.maximum.accumulate(items.ends[pair.rows])
        gaps = items.starts[pair.rows][1:] > latest_ends[:-1]
        stretches = [0, *np.cumsum(gaps).tolist()]
        clips = zip(pair.rows, pair.levels_a, pair.levels_b, stretches, strict=True)

        def place(clip: tuple[Any, ...]) -> tuple[bool, int]:
            _, a, b, stretch = clip
            return None not in (a, b) and a != b, stretch

        for (differs, _), run in groupby(clips, place):
            if differs:
                about = {"film": pair.film, "a": pair.a, "b": pair.b}
                runs.append(about | _difference([*run], items, distances))

    def key(run: Row) -> tuple[Any, ...]:
        size = -run["seconds"], -run["clips"], -run["distance"]
        return *size, run["film"], run["start"] or 0.0, run["first"], run["a"], run["b"]

    return sorted(runs, key=key)


def _difference(run: Sequence[tuple[Any, ...]], items: Items, distances: Distances) -> Row:
    """Summarise a run of clips, each given by its row, two levels and stretch."""
    rows, levels_a, levels_b, _ = zip(*run, strict=True)
    timed = np.array(rows)[~np.isnan(items.starts[[*rows]])]
    starts = items.starts[timed].tolist()
    ends = items.ends[timed].tolist()
    rank = distances.codes.index
    apart = distances.matrix[list(map(rank, levels_a)), list(map(rank, levels_b))]
    return {
        "first": items.ids[rows[0]],
        "last": items.ids[rows[-1]],
        "clips": len(rows),
        "seconds": math.fsum(items.ends[timed] - items.starts[timed]),
        "start": min(starts, default=None),
        "end": max(ends, default=None),
        "levels_a": [level for level, _ in groupby(levels_a)],
        "levels_b": [level for level, _ in groupby(levels_b)],
        "distance": fmean(apart.tolist()),
    }
