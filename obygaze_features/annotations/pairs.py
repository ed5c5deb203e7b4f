"""Pairs of label sets, film by film: the clips that both have, in the film's order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np

from obygaze_features.annotations.grids import films_of
from obygaze_features.annotations.merge import other_timelines, timelines_of
from obygaze_features.annotations.projection import stopped_early
from obygaze_features.annotations.remarks import LEFT_OUT, Remark
from obygaze_features.common.text import join_some
from obygaze_features.errors import UsageError
from obygaze_features.manifests.labels import LabelSet
from obygaze_features.manifests.manifest import Manifest

__all__ = ["Pair", "pairs_of"]


@dataclass(frozen=True, eq=False)
class Pair:
    """Two label sets in one film.

    `rows` are the manifest's rows of all clips of the film, in the film's order; a level is None
    where the label set lacks the clip.
    """

    film: str
    a: str
    b: str
    rows: Sequence[int]
    levels_a: Sequence[str | None]
    levels_b: Sequence[str | None]

    @cached_property
    def common(self) -> tuple[list[str], list[str]]:
        """The levels of the clips that both have."""
        both = [
            (one, other)
            for one, other in zip(self.levels_a, self.levels_b, strict=True)
            if one is not None and other is not None
        ]
        return [one for one, _ in both], [other for _, other in both]

    @property
    def unpaired(self) -> int:
        """How many clips only one of the two has."""
        return sum(
            (one is None) != (other is None)
            for one, other in zip(self.levels_a, self.levels_b, strict=True)
        )


def pairs_of(manifest: Manifest, names: Sequence[str] = ()) -> tuple[list[Pair], list[Remark]]:
    """Every two label sets in every film in which both have clips; films that lack a second one.

    Parameters
    ----------
    manifest
        What the label sets hang on.
    names
        The label sets, in any order; by default those projected from annotators' timelines, or
        where there are none, all that are not merged from others.
    """
    sets = [manifest.labels(name) for name in sorted(set(names) or _annotators(manifest))]
    if len(sets) < 2:
        known = join_some(manifest.label_names) or "none"
        raise UsageError(
            f"agreement is between two label sets, and {len(sets)} was named or found; "
            f"the manifest {manifest.name!r} has {known}"
        )
    pairs, remarks = [], other_timelines(sets, manifest)
    for film, rows in _films(manifest).items():
        ids = [manifest.ids[row] for row in rows]
        of_film = [(one.name, [one.level_of.get(each) for each in ids]) for one in sets]
        there = [(one, levels) for one, levels in of_film if any(levels)]
        every = [
            Pair(film, a, b, rows, left, right) for (a, left), (b, right) in combinations(there, 2)
        ]
        found = [pair for pair in every if pair.common[0]]
        if there and not found:
            remarks.append(_alone(manifest.name, film, [name for name, _ in there]))
        if found:
            remarks += [one for labels in sets for one in _stopped(labels, film, rows, manifest)]
        pairs += found
    return pairs, remarks


def _alone(where: str, film: str, names: Sequence[str]) -> Remark:
    if len(names) == 1:
        return Remark(where, film, names[0], "no second annotator", LEFT_OUT)
    return Remark(where, film, "", f"{join_some(names)} have no clip in common", LEFT_OUT)


def _stopped(labels: LabelSet, film: str, rows: Sequence[int], manifest: Manifest) -> list[Remark]:
    """A remark if no segment of who is projected here reaches into the second half of the film."""
    if timelines_of(labels) is None or not labels.ratio:
        return []
    ratio = dict(zip(labels.ids, labels.ratio, strict=True))
    ids, ends = manifest.ids, manifest.items.ends
    held = [row for row in rows if ids[row] in ratio]
    if not held:
        return []
    reached = max((float(ends[row]) for row in held if ratio[ids[row]]), default=0.0)
    whole = float(ends[held].max())
    return stopped_early(manifest.name, film, labels.name, reached, whole, manifest.scheme)


def _annotators(manifest: Manifest) -> list[str]:
    """The label sets that say which annotator's they are; if none does, those not merged."""
    sets = [manifest.labels(name) for name in manifest.label_names]
    said = [one.name for one in sets if "annotator" in one.about]
    return said or [one.name for one in sets if "of" not in one.about]


def _films(manifest: Manifest) -> dict[str, list[int]]:
    """Film -> rows, in time where the clips are spans, else in the manifest's order."""
    starts, ends = manifest.items.starts, manifest.items.ends
    films: dict[str, list[int]] = {}
    for row, film in enumerate(films_of(manifest.items)):
        films.setdefault(film, []).append(row)
    for film, rows in films.items():
        if not np.isnan(starts[rows]).any():
            order = np.lexsort((ends[rows], starts[rows]))
            films[film] = [rows[place] for place in order]
    return films
