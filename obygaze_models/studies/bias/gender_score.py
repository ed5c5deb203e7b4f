"""The gender score of captions by object, beside the co-occurrence of object and gender.

GS = P ** alpha, where alpha = ((1 - sim) / (1 + sim)) ** (1 - P(c)). P is the mean probability of
the caption's tokens, sim is the caption's similarity to the object's label, and P(c) is the
confidence of the object's classifier. The score measures how strongly the object in an image
supports the gender in the caption.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike
from pandas import DataFrame, Series

from obygaze_features.common.arrays import Array
from obygaze_features.common.tables import Table, read_table
from obygaze_features.errors import BiasError
from obygaze_features.manifests.labels import read_ids
from obygaze_models.studies.bias.inputs import Lexicon, numbers, shipped_lexicon, tokens
from obygaze_models.studies.bias.measured import Drawing, Measured, Row

GENDERS = ("man", "woman")
ALL_OBJECTS = "all objects"
# Cosines of 32-bit vectors can be slightly above 1.
_ROUNDING = 1e-6
_DRAWING = Drawing(
    title="Objects and gender",
    axis="man / (man + woman); .5 leans to neither",
    groups=["object"],
    series="measure",
    value="to_man",
    limits=(0, 1),
)


def gender_scores(path: str | Path) -> Measured:
    """Score a table of captions, and measure the lean of each object towards man or woman.

    There is a row for each object and measure, objects with the most captions first, and at the end
    a row of each measure for all objects together. ``to_man`` is man / (man + woman).

    - ``said``: the mean score of captions that name only a man, and of captions that name only
      a woman.
    - ``filled``: the mean score of all captions with "man" filled in, and with "woman" filled in.
    - ``assigned``: how many captions score higher with "man", and with "woman". The rest are tied.
    - ``cooccurrence``: how many captions name only a man, and only a woman.

    ``details`` has the scores of each caption.

    Parameters
    ----------
    path
        A CSV table with ``group`` (man or woman) or ``caption``, from which co-occurrence is
        counted. To score original captions, it also needs ``probability``, ``similarity`` and
        ``confidence``. To score both variants, it needs ``probability_man``, ``similarity_man``,
        ``probability_woman``, ``similarity_woman`` and ``confidence``. ``id``, ``caption`` and
        ``object`` are kept.
    """
    import pandas as pd

    table = read_table(Path(path), delimiter=None)
    table.check_cells("object")
    if "id" in table.columns:
        read_ids(table)
    has_variants = "probability_man" in table.columns
    scores = {}
    if "probability" in table.columns:
        scores["score"] = _score(table)
    if has_variants:
        for gender in GENDERS:
            scores[f"score_{gender}"] = _score(table, f"_{gender}")
    lexicon = shipped_lexicon("genders")
    if "group" in table.columns:
        genders = []
        for line, text in zip(table.lines, table["group"], strict=True):
            genders.append(lexicon.group("group", text, f"{path}, line {line}"))
    else:
        genders = [gender_of(text, lexicon) for text in table.get("caption")]
    names_gender = not set(genders).isdisjoint(GENDERS)
    if not has_variants and not names_gender:
        raise BiasError(f"{path}: no caption mentions a man or a woman. Add a 'group' column")

    kept = pd.DataFrame(table.columns).filter(["id", "caption", "object"])
    captions = kept.assign(group=genders, **scores)
    objects = []
    if "object" in captions:
        objects = sorted(captions.groupby("object"), key=lambda of_object: -len(of_object[1]))
    rows = []
    for name, described in [*objects, (ALL_OBJECTS, captions)]:
        rows += _measure(name, described, names_gender=names_gender)
    return Measured(rows, _DRAWING, details={"captions": captions.to_dict("records")})


def gender_score(probability: ArrayLike, similarity: ArrayLike, confidence: ArrayLike) -> Array:
    """Return the gender score of each caption.

    Parameters
    ----------
    probability
        P: the mean probability of each caption's tokens, from 0 to 1.
    similarity
        sim: each caption's similarity to the object's label, above -1 and at most 1.
    confidence
        P(c): the confidence of the object's classifier, from 0 to 1.

    Examples
    --------
    >>> round(float(gender_score(0.12759140133857727, 0.5452305674552917, 0.2183)), 12)
    0.453207141502
    """
    p = np.asarray(probability, dtype=float)
    sim = np.asarray(similarity, dtype=float)
    sure = np.asarray(confidence, dtype=float)
    is_valid = (p >= 0) & (p <= 1) & (sure >= 0) & (sure <= 1)
    if not np.all(is_valid & (sim > -1) & (sim <= 1 + _ROUNDING)):
        raise BiasError(
            "probability and confidence must be from 0 to 1, and similarity above -1 and at most 1"
        )
    sim = np.minimum(sim, 1)
    return np.asarray(p ** (((1 - sim) / (1 + sim)) ** (1 - sure)))


def gender_of(caption: str, lexicon: Lexicon) -> str:
    """Return the gender that a caption names: man, woman, both or neither.

    Examples
    --------
    >>> genders = shipped_lexicon("genders")
    >>> gender_of("A woman, riding a horse.", genders), gender_of("a horse", genders)
    ('woman', 'neither')
    """
    words = set(tokens(caption))
    named = [gender for gender in GENDERS if not words.isdisjoint(lexicon.words[gender])]
    if len(named) == 2:
        return "both"
    return "".join(named) or "neither"


def _score(table: Table, variant: str = "") -> Array:
    return gender_score(
        numbers(table, f"probability{variant}", 0, 1),
        numbers(table, f"similarity{variant}", -1, 1 + _ROUNDING),
        numbers(table, "confidence", 0, 1),
    )


def _measure(name: object, captions: DataFrame, *, names_gender: bool) -> list[Row]:
    """Return a row for each measure of some captions."""
    of_gender = [captions[captions["group"] == gender] for gender in GENDERS]
    measured = {}
    if "score" in captions:
        measured["said"] = [_mean(table["score"]) for table in of_gender]
    if "score_man" in captions:
        man = captions["score_man"]
        woman = captions["score_woman"]
        measured["filled"] = [_mean(man), _mean(woman)]
        measured["assigned"] = [int((man > woman).sum()), int((woman > man).sum())]
    if names_gender:
        measured["cooccurrence"] = [len(table) for table in of_gender]

    results = []
    for measure, (to_man, to_woman) in measured.items():
        share = None
        if to_man is not None and to_woman is not None and to_man + to_woman:
            share = to_man / (to_man + to_woman)
        row = {"object": name, "captions": len(captions), "measure": measure}
        results.append({**row, "man": to_man, "woman": to_woman, "to_man": share})
    return results


def _mean(scores: Series) -> float | None:
    if scores.empty:
        return None
    return math.fsum(scores) / len(scores)
