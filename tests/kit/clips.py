"""Clips with a known signal, and bottlenecks on a bank that stays as it is fitted."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.tree import DecisionTreeClassifier

import obygaze_models as om

CONCEPTS = ("Look", "Body", "Posture")


def tree_on(bank: om.ConceptBank, **options: Any) -> om.ConceptBottleneck:
    head = DecisionTreeClassifier(**{"max_depth": 10, "random_state": 0} | options)
    return om.ConceptBottleneck(FrozenEstimator(bank), head)


def logistic_on(bank: om.ConceptBank, **options: Any) -> om.ConceptBottleneck:
    return om.ConceptBottleneck(FrozenEstimator(bank), om.LogisticProbe(**{"C": 0.1} | options))


def with_output(bank: om.ConceptBank, output: str) -> om.ConceptBank:
    """The bank, giving distances or decision values."""
    changed = copy(bank)
    changed.output = output
    return changed


def small_clips(clips: int = 240, width: int = 16) -> om.ClipDataset:
    """Three levels in turn over six folds and four films; Sure clips show more concepts.

    Unit-norm features: noise, a direction for each concept, and one for Sure.
    """
    chance = np.random.default_rng(7)
    levels = [("EN", "HN", "S")[row % 3] for row in range(clips)]
    share = np.array([{"EN": 0, "HN": 0.25, "S": 0.75}[level] for level in levels])
    concepts = chance.random((clips, len(CONCEPTS))) < share[:, None]
    chance = np.random.default_rng(5)
    directions = chance.normal(size=(len(CONCEPTS) + 1, width))
    shown = np.column_stack([concepts, np.array(levels) == "S"])
    features = chance.normal(size=(clips, width)) + shown @ directions
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    return om.ClipDataset(
        ids=[f"tt{row % 4}-{row:03}" for row in range(clips)],
        levels=levels,
        concepts=concepts,
        concept_names=CONCEPTS,
        groups=np.array([f"tt{row % 4}" for row in range(clips)]),
        folds=np.array([row // 3 % 6 for row in range(clips)]),
        X=features.astype(np.float32),
        frames=np.repeat(features[:, None], 2, axis=1).astype(np.float16),
    )
