"""The table of what a Gender Score is made of: captions, how likely, and how near their objects."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from obygaze_features.common.files import refuse_to_overwrite, to_json, write_files
from obygaze_features.common.progress import progress
from obygaze_features.common.tables import Table, format_table, read_table
from obygaze_features.common.words import quote
from obygaze_features.errors import BiasError
from obygaze_features.language.gender_words import MASK, Variants, gender_of, variants
from obygaze_features.language.kept_scores import Kept, Scores, row_key
from obygaze_features.language.language_model import LanguageModel
from obygaze_features.language.sentence_encoder import SentenceEncoder
from obygaze_features.manifests.importers.shared import delimiter_of

__all__ = ["CaptionScores", "Captions", "read_captions", "score_captions"]

BLOCK = 64
"""Rows that are scored and kept at a time; the same ones whenever a run is gone on with."""
_MADE_HERE = ("probability", "similarity")


@dataclass(frozen=True)
class Captions:
    """A table of captions and of the objects in their pictures.

    Parameters
    ----------
    table
        As it was read.
    pairs
        Of each row's caption the one that speaks of a man and the one that speaks of a woman;
        empty where no variants are wanted.
    """

    table: Table
    pairs: Sequence[Variants | None] = ()

    def texts(self, row: int) -> dict[str, str]:
        """The ends of the columns of scores -> the caption that they are of."""
        caption = self.table["caption"][row]
        found = {} if MASK in caption else {"": caption}
        if self.pairs and (pair := self.pairs[row]):
            found |= {"_man": pair.man, "_woman": pair.woman}
        return found


@dataclass(frozen=True)
class CaptionScores:
    """What came of it.

    Parameters
    ----------
    rows
        How many captions there are.
    kept
        How many of them an interrupted run had scored before.
    without_variants
        Captions that have none, where variants are wanted.
    too_long
        Captions, by id, that the language model cannot read whole; they have no probability.
    cut
        Captions, by id, of which the sentence encoder reads only the beginning.
    """

    rows: int
    kept: int
    without_variants: list[str] = field(default_factory=list)
    too_long: list[str] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)


def read_captions(path: Path, *, with_variants: bool = False) -> Captions:
    """Read a CSV table with ``id``, ``caption`` and ``object``; others are kept.

    Parameters
    ----------
    path
        The table. ``confidence`` is checked if it is there: a number from 0 to 1.
    with_variants
        Also fill each caption with man and with woman.
    """
    table = read_table(
        path,
        delimiter=delimiter_of(path),
        required=("id", "caption", "object"),
        marked=True,
    )
    for name in table.columns:
        if name.startswith(_MADE_HERE) or name in ("caption_man", "caption_woman"):
            raise BiasError(f"{path}, line 1: the column {name!r} is made here; rename it")
    seen: set[str] = set()
    for row, (one, caption, thing) in enumerate(
        zip(table["id"], table["caption"], table["object"], strict=True)
    ):
        problem = None
        if not one.strip() or one in seen:
            problem = f"duplicate id {quote(one)}" if one in seen else "an empty id"
        elif not caption.strip() or not thing.strip():
            problem = f"{one} has no {'object' if caption.strip() else 'caption'}"
        elif MASK in caption and not with_variants:
            problem = f"the caption of {one} has {MASK}, which is filled in with --variants"
        elif "confidence" in table.columns:
            problem = _not_a_share(table["confidence"][row])
        if problem:
            raise BiasError(f"{path}, line {table.lines()[row]}: {problem}")
        seen.add(one)
    return Captions(table, list(map(variants, table["caption"])) if with_variants else ())


def score_captions(
    captions: Captions,
    output: Path,
    model: LanguageModel,
    encoder: SentenceEncoder,
    *,
    overwrite: bool = False,
) -> CaptionScores:
    """Score captions, and write the table with its scores, and a record of the models beside it.

    An interrupted call is gone on with by the same one: rows that were scored are taken as they
    are if neither caption nor object has changed.

    Parameters
    ----------
    captions
        From `read_captions`.
    output
        A CSV file; the record is the JSON file of the same name.
    model, encoder
        From `load_language_model` and `load_sentence_encoder`.
    overwrite
        Replace what lies there.
    """
    record = output.with_suffix(".json")
    for path in (output, record):
        refuse_to_overwrite(path, overwrite=overwrite)
    made_with = {"language_model": dict(model.about), "sentence_encoder": dict(encoder.about)}
    table = captions.table
    keys = [
        row_key(table["object"][row], *captions.texts(row).values()) for row in range(len(table))
    ]
    rows = list(zip(table["id"], keys, strict=True))
    with Kept(output, made_with) as kept:
        before = sum(row in kept.scores for row in rows)
        todo = [
            some
            for start in range(0, len(rows), BLOCK)
            if (
                some := [
                    row
                    for row in range(start, min(start + BLOCK, len(rows)))
                    if rows[row] not in kept.scores
                ]
            )
        ]
        for some in progress(todo, "Scoring", unit="block"):
            found = _score(captions, some, model, encoder)
            kept.add((*rows[row], scores) for row, scores in zip(some, found, strict=True))
        scores = [kept.scores[row] for row in rows]
        text = format_table(_columns(captions, scores))
        about = {**made_with, "rows": len(rows), "variants": bool(captions.pairs)}
        write_files({output: text, record: to_json(about)}, overwrite=overwrite)
        kept.discard()
    return _summary(captions, scores, before, encoder)


def _score(
    captions: Captions, rows: Sequence[int], model: LanguageModel, encoder: SentenceEncoder
) -> Iterator[Scores]:
    table = captions.table
    wanted = {row: captions.texts(row) for row in rows}
    texts = list(dict.fromkeys(text for ends in wanted.values() for text in ends.values()))
    chances = dict(zip(texts, model.mean_probabilities(texts), strict=True))
    both = list(dict.fromkeys([*texts, *(table["object"][row] for row in rows)]))
    vectors = dict(zip(both, encoder.embed(both).double().numpy(), strict=True))
    for row, ends in wanted.items():
        thing = vectors[table["object"][row]]
        scores: Scores = {f"probability{end}": chances[text] for end, text in ends.items()}
        yield scores | {
            # Of two vectors that are the same, rounding may leave a little over 1.
            f"similarity{end}": min(1.0, max(-1.0, float(vectors[text] @ thing)))
            for end, text in ends.items()
        }


def _columns(captions: Captions, scores: Sequence[Scores]) -> dict[str, Sequence[str]]:
    table = captions.table
    columns: dict[str, Sequence[str]] = dict(table.columns)
    if not {"group", "gender"} & set(columns):
        columns["group"] = list(map(gender_of, table["caption"]))
    for end in ("", "_man", "_woman") if captions.pairs else ("",):
        if end:
            columns[f"caption{end}"] = [
                captions.texts(row).get(end, "") for row in range(len(table))
            ]
        for name in (f"probability{end}", f"similarity{end}"):
            columns[name] = list(map(partial(_cell, name=name), scores))
    return columns


def _summary(
    captions: Captions, scores: Sequence[Scores], kept: int, encoder: SentenceEncoder
) -> CaptionScores:
    ids, texts = captions.table["id"], captions.table["caption"]
    counts = encoder.tokens.count(texts)
    return CaptionScores(
        rows=len(ids),
        kept=kept,
        without_variants=[
            one for one, pair in zip(ids, captions.pairs, strict=False) if pair is None
        ],
        too_long=[
            one
            for one, found in zip(ids, scores, strict=True)
            if any(name.startswith("probability") and found[name] is None for name in found)
        ],
        cut=[one for one, count in zip(ids, counts, strict=True) if count > encoder.tokens.longest],
    )


def _cell(scores: Mapping[str, Any], name: str) -> str:
    value = scores.get(name)
    return "" if value is None else repr(value)


def _not_a_share(cell: str) -> str | None:
    try:
        value = float(cell)
    except ValueError:
        value = math.nan
    return None if 0 <= value <= 1 else f"the confidence {quote(cell)} is no number from 0 to 1"
