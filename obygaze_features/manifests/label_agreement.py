"""Two label sets of a manifest compared: levels, the score on a task, and concept by concept.

What one annotator's labels score against the other's is a rough guide to what a model of the same
task can reach, and no limit.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from obygaze_features.manifests.labels import LabelScheme
from obygaze_features.manifests.manifest import Manifest

NOT_SURE = "NS"


@dataclass(frozen=True)
class ConceptAgreement:
    """A concept in two label sets: Cohen's kappa, and the share of clips that have it in each.

    `kappa` is None where both give it to every clip.
    """

    concept: str
    kappa: float | None
    share_first: float
    share_second: float


@dataclass(frozen=True)
class LabelSetAgreement:
    """Two label sets on the clips that both have.

    `confusion` maps each two levels (of the first, of the second) to a number of clips;
    `equal_levels` is the share of clips with one level, NaN without clips.
    """

    first: str
    second: str
    clips: int
    equal_levels: float
    confusion: Mapping[tuple[str, str], int]
    concepts: tuple[ConceptAgreement, ...]

    def f1(self, positives: Collection[str], negatives: Collection[str]) -> float:
        """F1 of the first scored against the second, on clips that both give a level of the task.

        The same with the two exchanged; NaN where neither has a positive clip.
        """
        task = {*positives, *negatives}
        shared = first = second = 0
        for (a, b), clips in self.confusion.items():
            if {a, b} <= task:
                shared += clips * (a in positives and b in positives)
                first += clips * (a in positives)
                second += clips * (b in positives)
        return 2 * shared / (first + second) if first + second else float("nan")

    def in_both(self, levels: Collection[str]) -> int:
        """How many clips have one of these levels in both."""
        pairs = self.confusion.items()
        return sum(clips for (a, b), clips in pairs if a in levels and b in levels)

    def counts(self, level: str) -> tuple[int, int, int]:
        """How many clips have a level in the first, in the second, and in both."""
        first = sum(clips for (a, _), clips in self.confusion.items() if a == level)
        second = sum(clips for (_, b), clips in self.confusion.items() if b == level)
        return first, second, self.confusion.get((level, level), 0)

    def only_by(self, concept: ConceptAgreement) -> str:
        """The label set that alone has a concept; empty where both or neither do."""
        if bool(concept.share_first) == bool(concept.share_second):
            return ""
        return self.first if concept.share_first else self.second

    def concepts_by_kappa(self) -> list[ConceptAgreement]:
        """The best agreed on first, those without kappa last."""
        return sorted(
            self.concepts, key=lambda entry: math.inf if entry.kappa is None else -entry.kappa
        )

    def to_json(self) -> dict[str, Any]:
        """The numbers as JSON."""
        return {
            "a": self.first,
            "b": self.second,
            "clips": self.clips,
            "equal_levels": None if np.isnan(self.equal_levels) else self.equal_levels,
            "concepts": [vars(concept) for concept in self.concepts],
        }


def compare_label_sets(manifest: Manifest, first: str, second: str) -> LabelSetAgreement:
    """Compare two label sets of a manifest, by name.

    The concepts are those that either gives to a clip that both have, in the scheme's order.
    """
    a, b = manifest.labels(first), manifest.labels(second)
    scheme = manifest.shared_scheme([a, b])
    ids = [identifier for identifier in a.ids if identifier in b.level_of]
    pairs = Counter((a.level_of[identifier], b.level_of[identifier]) for identifier in ids)
    counts: dict[str, list[int]] = {name: [0, 0, 0] for name in scheme.concept_names}
    for identifier in ids:
        of_first, of_second = set(a.concepts_of[identifier]), set(b.concepts_of[identifier])
        for name in of_first | of_second:
            counts[name][0] += name in of_first
            counts[name][1] += name in of_second
            counts[name][2] += name in of_first and name in of_second
    clips = len(ids)
    concepts = [
        ConceptAgreement(name, _binary_kappa(clips, x, y, shared), x / clips, y / clips)
        for name, (x, y, shared) in counts.items()
        if x or y
    ]
    equal = sum(number for (x, y), number in pairs.items() if x == y)
    return LabelSetAgreement(
        first, second, clips, equal / clips if clips else float("nan"), dict(pairs), tuple(concepts)
    )


def annotator_label_sets(manifest: Manifest) -> list[str]:
    """The label sets projected from annotators' timelines; without any, all that are not merged."""
    all_sets = [manifest.labels(name) for name in manifest.label_names]
    projected = [labels.name for labels in all_sets if labels.is_annotators_own]
    return projected or [labels.name for labels in all_sets if "of" not in labels.about]


def sure_task(scheme: LabelScheme) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The highest level, and the levels below it without Not Sure: the paper's EN+HN against S."""
    *below, top = scheme.codes
    return (top,), tuple(code for code in below if code != NOT_SURE)


def confusion(a: Sequence[str], b: Sequence[str], codes: Sequence[str]) -> np.ndarray:
    """How many clips got which two levels: `a` in rows, `b` in columns.

    Examples
    --------
    >>> confusion(["EN", "S", "S"], ["EN", "EN", "S"], ["EN", "S"]).tolist()
    [[1, 0], [1, 1]]
    """
    rank = {code: number for number, code in enumerate(codes)}
    cells = [rank[x] * len(codes) + rank[y] for x, y in zip(a, b, strict=True)]
    counts = np.bincount(np.array(cells, dtype=int), minlength=len(codes) ** 2)
    return counts.reshape(len(codes), len(codes))


def cohen_kappa(counts: np.ndarray) -> float | None:
    """Cohen's kappa, every difference weighing the same."""
    total = counts.sum()
    expected = (counts.sum(axis=1) * counts.sum(axis=0)).sum()
    if expected == total**2:
        return None
    return float((np.trace(counts) * total - expected) / (total**2 - expected))


def _binary_kappa(clips: int, first: int, second: int, shared: int) -> float | None:
    """Kappa of a concept by the numbers of clips that each gives it to, and both."""
    table = [[clips - first - second + shared, second - shared], [first - shared, shared]]
    return cohen_kappa(np.array(table))
