"""The 1,048 clips of the released split, with a known signal in their features, for experiments."""

from __future__ import annotations

import ast
import csv
import os
from dataclasses import replace
from pathlib import Path

import numpy as np

import obygaze_models as om
from obygaze_models.data.dataset import ClipDataset

__all__ = ["CONCEPTS", "known_clips"]

CODES = {"Easy Neg": "EN", "Hard Neg": "HN", "Sure": "S"}
COUNTS = {"EN": 436, "HN": 304, "S": 308}
CONCEPTS = (
    "Type of plan", "Look", "Body", "Posture", "Clothes", "Appearance", "Exp of emotion",
    "Activities",
)  # fmt: skip
DIM, FILMS, FOLDS = 512, 12, 10


def known_clips(*, signal: float, length: float, seed: int = 0) -> ClipDataset:
    """Return clips whose features are noise, plus a direction for each concept and for Sure.

    The features have the mean length `length`. Levels, concepts, films and folds are the authors'
    if OBYGAZE_TEST_DATA names their folder. Otherwise they are made up, with as many clips of each
    level.
    """
    chance = np.random.default_rng(seed)
    authors = os.environ.get("OBYGAZE_TEST_DATA")
    levels, concepts, films, folds = _authors(Path(authors)) if authors else _drawn(chance)
    directions = chance.standard_normal((len(CONCEPTS) + 1, DIM))
    shown = np.column_stack([concepts, np.array(levels) == "S"])
    features = chance.standard_normal((len(levels), DIM)) + signal * shown @ directions
    features *= length / np.linalg.norm(features, axis=1).mean()
    data = om.dataset(
        features.astype(np.float32),
        levels,
        films,
        ids=[f"{film}-{row:04}" for row, film in enumerate(films)],
        concepts=concepts,
        concept_names=CONCEPTS,
    )
    return replace(data, folds=folds, last_fold=FOLDS - 1, labels={})


def _authors(data: Path) -> tuple[list[str], np.ndarray, list[str], np.ndarray]:
    path = data / "obygaze12" / "balanced_level" / "02_EN_HN_S.csv"
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter=";"))
    marked = [{" ".join(one.split()) for one in ast.literal_eval(row["reason"])} for row in rows]
    return (
        [CODES[row["label"]] for row in rows],
        np.array([[name in of for name in CONCEPTS] for of in marked]),
        [row["movie"] for row in rows],
        np.array([int(row["fold"]) for row in rows]),
    )


def _drawn(chance: np.random.Generator) -> tuple[list[str], np.ndarray, list[str], np.ndarray]:
    levels = [level for level, count in COUNTS.items() for _ in range(count)]
    share = np.array([{"EN": 0, "HN": 0.3, "S": 0.6}[level] for level in levels])
    concepts = chance.random((len(levels), len(CONCEPTS))) < share[:, None]
    films = chance.permutation(len(levels)) % FILMS
    folds = np.arange(len(levels)) % FOLDS
    return levels, concepts, [f"tt{film:07d}" for film in films.tolist()], folds
