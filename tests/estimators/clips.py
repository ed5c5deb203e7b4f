"""Features with a known signal, made from the authors' own labels."""

from __future__ import annotations

import ast
import csv
from copy import copy
from pathlib import Path

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.tree import DecisionTreeClassifier

from obygaze_models.dataset import ClipDataset
from obygaze_models.estimators.bottlenecks import ConceptBottleneck
from obygaze_models.estimators.logistic import LogisticProbe

CODES = {"Easy Neg": "EN", "Hard Neg": "HN", "Sure": "S", "EN": "EN", "HN": "HN", "S": "S"}
CONCEPTS = (
    "Type of plan", "Look", "Body", "Posture", "Clothes", "Appearance", "Exp of emotion",
    "Activities",
)  # fmt: skip


def tree_on(bank, **options) -> ConceptBottleneck:
    """A decision tree on a bank that stays as it is fitted."""
    head = DecisionTreeClassifier(**{"max_depth": 10, "random_state": 0} | options)
    return ConceptBottleneck(FrozenEstimator(bank), head)


def logistic_on(bank, **options) -> ConceptBottleneck:
    """A linear head on a bank that stays as it is fitted."""
    return ConceptBottleneck(FrozenEstimator(bank), LogisticProbe(**{"C": 0.1} | options))


def with_output(bank, output: str):
    """The bank, giving distances or decision values."""
    changed = copy(bank)
    changed.output = output
    return changed


def authors_clips(data: Path, *, width: int = 64, signal: float = 0.35) -> ClipDataset:
    """The 1,048 clips of the released split; each concept adds its own direction to the noise."""
    path = data / "obygaze12" / "balanced_level" / "02_EN_HN_S.csv"
    with path.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file, delimiter=";"))
    levels = [CODES[row["label"]] for row in rows]
    marked = [{" ".join(one.split()) for one in ast.literal_eval(row["reason"])} for row in rows]
    concepts = np.array([[name in of for name in CONCEPTS] for of in marked])
    return known_clips(
        levels, concepts, [row["movie"] for row in rows], [int(row["fold"]) for row in rows],
        width=width, signal=signal,
    )  # fmt: skip


def known_clips(
    levels, concepts, films, folds, *, width: int = 16, signal: float = 1.0
) -> ClipDataset:
    """Unit-norm features: noise, a direction for each concept, and one for Sure."""
    chance = np.random.default_rng(5)
    directions = chance.normal(size=(concepts.shape[1] + 1, width))
    shown = np.column_stack([concepts, np.array(levels) == "S"])
    features = chance.normal(size=(len(levels), width)) + signal * shown @ directions
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    return ClipDataset(
        ids=[f"{film}-{row:03}" for row, film in enumerate(films)],
        levels=list(levels),
        concepts=concepts,
        concept_names=CONCEPTS[: concepts.shape[1]],
        groups=np.array(films),
        folds=np.array(folds),
        X=features.astype(np.float32),
        frames=np.repeat(features[:, None], 2, axis=1).astype(np.float16),
    )


def small_clips(clips: int = 240, concepts: int = 3) -> ClipDataset:
    """Three levels in turn over six folds and four films; Sure clips show more concepts."""
    chance = np.random.default_rng(7)
    levels = [("EN", "HN", "S")[row % 3] for row in range(clips)]
    share = np.array([{"EN": 0, "HN": 0.25, "S": 0.75}[level] for level in levels])
    shown = chance.random((clips, concepts)) < share[:, None]
    return known_clips(
        levels,
        shown,
        [f"tt{row % 4}" for row in range(clips)],
        [row // 3 % 6 for row in range(clips)],
    )
