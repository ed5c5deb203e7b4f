"""The table of what a Gender Score is made of: captions, how likely, and how near their objects."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from obygaze_features.common.files import refuse_to_overwrite, to_json, write_files
from obygaze_features.common.progress import progress
from obygaze_features.common.tables import Table, format_table, map_columns, read_table
from obygaze_features.common.text import shorten
from obygaze_features.errors import BiasError, UsageError
from obygaze_features.language.gender_words import MASK, Variants, variants
from obygaze_features.language.kept_scores import Kept, Scores, row_key
from obygaze_features.language.language_model import LanguageModel
from obygaze_features.language.sentence_encoder import SentenceEncoder

__all__ = ["CaptionScores", "Captions", "read_captions", "score_captions"]

BLOCK = 64
"""Rows that are scored and kept at a time; the same ones whenever a run is gone on with."""
_MADE_HERE = re.compile(r"(probability|similarity|P|sim)(_man|_woman)?|caption_(man|woman)")


@dataclass(frozen=True)
class Captions:
    """A table of captions and of the objects in their pictures.

    Parameters
    ----------
    table
        Those of its rows that are to be scored.
    pairs
        Of each row's caption the one that speaks of a man and the one that speaks of a woman;
        None where only the caption itself is to be scored.
    without_variants
        Captions that are left out, by id, as they cannot be filled.
    """

    table: Table
    pairs: Sequence[Variants] | None = None
    without_variants: tuple[str, ...] = ()

    @cached_property
    def texts(self) -> dict[str, Sequence[str]]:
        """The ends of the columns of scores -> the texts that they are of."""
        captions = self.table["caption"]
        # What is not filled in is no caption, and then there is no such column.
        found: dict[str, Sequence[str]] = {"": captions}
        if any(MASK in one for one in captions):
            found = {}
        if self.pairs is not None:
            found["_man"] = [pair.man for pair in self.pairs]
            found["_woman"] = [pair.woman for pair in self.pairs]
        return found


@dataclass(frozen=True)
class CaptionScores:
    """What came of it.

    Parameters
    ----------
    scored
        How many captions were.
    before
        How many of them an interrupted run had scored.
    without_variants
        Captions that were left out, by id, as they cannot be filled.
    too_long
        Those that were left out as the language model cannot read them whole.
    cut
        Captions of which the sentence encoder read only the beginning.
    """

    scored: int
    before: int
    without_variants: Sequence[str]
    too_long: Sequence[str]
    cut: Sequence[str]


def read_captions(path: Path, *, with_variants: bool = False) -> Captions:
    """Read a CSV table with ``id``, ``caption`` and ``object``; others are kept.

    Parameters
    ----------
    path
        The table. ``confidence``, or ``P(c)``, is checked if it is there: a number from 0 to 1.
    with_variants
        Also fill each caption with man and with woman, and leave out those that cannot be.
    """
    table = read_table(path, delimiter=None, required=("id", "caption", "object"))
    table = map_columns(table, {"confidence": ["P(c)"]})
    for name in table.columns:
        if _MADE_HERE.fullmatch(name):
            raise BiasError(f"{path}, line 1: the column {name!r} is made here; rename it")
    if not len(table):
        raise BiasError(f"{path} has a header and no captions")
    for row, problem in _problems(table, with_variants):
        raise BiasError(f"{path}, line {table.lines[row]}: {problem}")
    if not with_variants:
        return Captions(table)
    pairs = list(map(variants, table["caption"]))
    rows = [row for row, pair in enumerate(pairs) if pair]
    if not rows:
        raise BiasError(
            f"{path} has no caption that can be filled with man and with woman; put {MASK} where "
            "the word is to stand"
        )
    return Captions(
        table.select(table.columns, rows),
        [pair for pair in pairs if pair],
        tuple(one for one, pair in zip(table["id"], pairs, strict=True) if not pair),
    )


def _problems(table: Table, with_variants: bool) -> Iterator[tuple[int, str]]:
    seen: set[str] = set()
    for row, cells in enumerate(table.rows()):
        one, caption = cells["id"], cells["caption"]
        if not one.strip():
            yield row, "an empty id"
        elif one in seen:
            yield row, f"duplicate id {shorten(one)}"
        elif not caption.strip() or not cells["object"].strip():
            yield row, f"{one} has no {'object' if caption.strip() else 'caption'}"
        elif MASK in caption and not with_variants:
            yield row, f"the caption of {one} has {MASK}, which is filled in with --variants"
        elif not _is_share(cells.get("confidence", "0")):
            told = shorten(cells["confidence"])
            yield row, f"the confidence of {one} is {told}, and a number from 0 to 1 is meant"
        seen.add(one)


def _is_share(cell: str) -> bool:
    try:
        return 0 <= float(cell) <= 1
    except ValueError:
        return False


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
    if record == output:
        raise UsageError(
            f"{output} is where the models are recorded; name a CSV file as the output"
        )
    for path in (output, record):
        refuse_to_overwrite(path, overwrite=overwrite)
    made_with = {"language_model": dict(model.about), "sentence_encoder": dict(encoder.about)}
    table, texts = captions.table, captions.texts
    if table.path.resolve() in (output.resolve(), record.resolve()):
        raise UsageError(f"{table.path} is the table of captions itself; name another output")
    keys = map(row_key, table["object"], *texts.values())
    rows = list(zip(table["id"], keys, strict=True))
    with Kept(output, made_with) as kept:
        before = sum(row in kept.scores for row in rows)
        for start in progress(range(0, len(rows), BLOCK), "Scoring", unit="block"):
            block = range(start, min(start + BLOCK, len(rows)))
            if todo := [row for row in block if rows[row] not in kept.scores]:
                found = _score(captions, todo, model, encoder)
                kept.add((*rows[row], found[row]) for row in todo)
        scores = [kept.scores[row] for row in rows]
        cannot = {row for row, found in enumerate(scores) if None in found.values()}
        whole = [row for row in range(len(rows)) if row not in cannot]
        done = CaptionScores(
            scored=len(whole),
            before=before,
            without_variants=captions.without_variants,
            too_long=[table["id"][row] for row in sorted(cannot)],
            cut=_cut(table.select(table.columns, whole), encoder),
        )
        if not whole:
            kept.discard()
            each = "the one caption is" if len(rows) == 1 else f"all {len(rows):,} captions are"
            raise BiasError(
                f"{each} longer than {model.name} reads ({model.tokens.longest:,} tokens)"
            )
        columns: dict[str, Sequence[str]] = dict(table.select(table.columns, whole).columns)
        for end, filled in texts.items():
            if end:
                columns[f"caption{end}"] = [filled[row] for row in whole]
            for name in (f"probability{end}", f"similarity{end}"):
                columns[name] = [repr(scores[row][name]) for row in whole]
        about = {**made_with, **asdict(done)}
        write_files({output: format_table(columns), record: to_json(about)}, overwrite=overwrite)
        kept.discard()
    return done


def _score(
    captions: Captions, rows: Sequence[int], model: LanguageModel, encoder: SentenceEncoder
) -> dict[int, Scores]:
    """The scores of some rows; each text is read once."""
    wanted = {row: {end: of[row] for end, of in captions.texts.items()} for row in rows}
    objects = captions.table["object"]
    texts = list(dict.fromkeys(text for ends in wanted.values() for text in ends.values()))
    chances = dict(zip(texts, model.mean_probabilities(texts), strict=True))
    both = list(dict.fromkeys([*texts, *(objects[row] for row in rows)]))
    vectors = dict(zip(both, encoder.embed(both).double().numpy(), strict=True))
    found: dict[int, Scores] = {}
    for row, ends in wanted.items():
        found[row] = {}
        for end, text in ends.items():
            near = float(vectors[text] @ vectors[objects[row]])
            found[row][f"probability{end}"] = chances[text]
            # Of two vectors that are the same, rounding may leave a little over 1.
            found[row][f"similarity{end}"] = min(1.0, max(-1.0, near))
    return found


def _cut(table: Table, encoder: SentenceEncoder) -> list[str]:
    """The captions, by id, that are longer than a sentence encoder reads."""
    counts = encoder.tokens.count(table["caption"]) if len(table) else []
    longest = encoder.tokens.longest
    return [one for one, count in zip(table["id"], counts, strict=True) if count > longest]
