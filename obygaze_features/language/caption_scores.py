"""Score captions by their probability and their similarity to an object, for gender scores."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import NamedTuple

from obygaze_features.common.files import refuse_to_overwrite, to_json, write_files
from obygaze_features.common.package import reference_json
from obygaze_features.common.progress import progress
from obygaze_features.common.tables import Table, format_spreadsheet, map_columns, read_table
from obygaze_features.common.text import shorten
from obygaze_features.errors import BiasError, UsageError
from obygaze_features.language.models import LanguageModel, SentenceEncoder

MASK = "[MASK]"
"""The placeholder for a caption's gendered word."""

_NOUNS: Mapping[tuple[str, str], str] = {
    ("man", "woman"): "man boy guy gentleman woman girl lady",
    ("men", "women"): "men boys guys gentlemen women girls ladies",
    ("male", "female"): "male female",
    ("males", "females"): "males females",
}
"""The nouns for men and for women, and the words that they replace."""
_PAIRS = {word: pair for pair, words in _NOUNS.items() for word in words.split()}
ROWS_PER_STEP = 64
_OUTPUT_COLUMN = re.compile(r"(probability|similarity|P|sim)(_man|_woman)?|caption_(man|woman)")

Scores = dict[str, float | None]


class Variants(NamedTuple):
    """A caption about a man, and the same caption about a woman."""

    man: str
    woman: str


@dataclass(frozen=True)
class Captions:
    """The captions to score, with their variants if these are scored, too."""

    table: Table
    pairs: Sequence[Variants] | None = None
    without_variants: tuple[str, ...] = ()

    @cached_property
    def texts(self) -> dict[str, Sequence[str]]:
        """The texts to score, by the suffix of their score columns."""
        captions = self.table["caption"]
        # A caption with a mask is not a proper text, so only its variants are scored.
        has_masks = any(MASK in caption for caption in captions)
        texts: dict[str, Sequence[str]] = {} if has_masks else {"": captions}
        if self.pairs is not None:
            texts["_man"] = [pair.man for pair in self.pairs]
            texts["_woman"] = [pair.woman for pair in self.pairs]
        return texts


@dataclass(frozen=True)
class CaptionScores:
    """The number of scored captions, and the ids of captions that were left out or cut off."""

    scored: int
    without_variants: Sequence[str]
    too_long: Sequence[str]
    cut: Sequence[str]


def read_captions(path: str | Path, *, with_variants: bool = False) -> Captions:
    """Read a CSV table with ``id``, ``caption`` and ``object``; other columns are kept.

    If there is a ``confidence`` or ``P(c)`` column, its cells must be numbers from 0 to 1. If
    `with_variants`, captions without variants are left out.
    """
    path = Path(path)
    table = read_table(path, delimiter=None, required=("id", "caption", "object"))
    table = map_columns(table.without_escapes(), {"confidence": ["P(c)"]})
    for name in table.columns:
        if _OUTPUT_COLUMN.fullmatch(name):
            raise BiasError(f"{path}, line 1: the column {name!r} would be overwritten; rename it")
    if not len(table):
        raise BiasError(f"{path}: the table has a header but no captions")
    for row, problem in _problems(table, with_variants):
        raise BiasError(f"{path}, line {table.lines[row]}: {problem}")
    if not with_variants:
        return Captions(table)
    pairs = list(map(make_variants, table["caption"]))
    rows = [row for row, pair in enumerate(pairs) if pair]
    if not rows:
        raise BiasError(
            f"{path}: no caption could be rewritten with 'man' and with 'woman'. Replace the word "
            f"for the person with {MASK}"
        )
    return Captions(
        table.select(table.columns, rows),
        [pair for pair in pairs if pair],
        tuple(item for item, pair in zip(table["id"], pairs, strict=True) if not pair),
    )


def make_variants(caption: str) -> Variants | None:
    """Return a caption with "man" and with "woman" in place of `MASK` or its nouns for people.

    Return None if the caption has no such noun, nouns for both genders, or another gendered word
    that would also have to change (such as a pronoun). You can put `MASK` into such captions
    yourself.

    Examples
    --------
    >>> make_variants("two boys on a road")
    Variants(man='two men on a road', woman='two women on a road')
    >>> make_variants("a [MASK] riding a motorcycle").woman
    'a woman riding a motorcycle'
    >>> make_variants("a girl with her dog") is None
    True
    """
    if MASK in caption:
        return Variants(caption.replace(MASK, "man"), caption.replace(MASK, "woman"))
    gender_of, gender_word = _gender_words()
    words = {word.lower() for word in gender_word.findall(caption)}
    if not words <= set(_PAIRS) or len({gender_of[word] for word in words}) != 1:
        return None

    def fill(index: int) -> str:
        return gender_word.sub(
            lambda word: _match_case(_PAIRS[word[0].lower()][index], word[0]), caption
        )

    return Variants(fill(0), fill(1))


@cache
def _gender_words() -> tuple[dict[str, str], re.Pattern[str]]:
    """Return the gender of each gendered word, and a pattern that matches these words."""
    lexicon = reference_json("lexicons/genders.json")["words"]
    gender_of = {word: gender for gender, words in lexicon.items() for word in words}
    return gender_of, re.compile(rf"\b(?:{'|'.join(gender_of)})\b", re.IGNORECASE)


def _match_case(word: str, original: str) -> str:
    if original.isupper():
        return word.upper()
    return word.capitalize() if original[0].isupper() else word


def score_captions(
    captions: Captions,
    output: str | Path,
    model: LanguageModel,
    encoder: SentenceEncoder,
    *,
    overwrite: bool = False,
) -> CaptionScores:
    """Score captions, and write a CSV table of scores and a JSON record of the models.

    The record has the same name as `output`, but ends in ``.json``.
    """
    output = Path(output)
    record = output.with_suffix(".json")
    table = captions.table
    if len({path.resolve() for path in (table.path, output, record)}) < 3:
        names = f"{table.path.name}, {output.name} and the models' record {record.name}"
        raise UsageError(
            f"{output}: {names} must be different files; choose another output, such as NAME.csv"
        )
    for path in (output, record):
        refuse_to_overwrite(path, overwrite=overwrite)
    scores: list[Scores] = []
    for start in progress(range(0, len(table), ROWS_PER_STEP), "Scoring", unit="block"):
        rows = range(start, min(start + ROWS_PER_STEP, len(table)))
        scores += _score(captions, rows, model, encoder)
    too_long = [row for row, values in enumerate(scores) if None in values.values()]
    complete = [row for row, values in enumerate(scores) if None not in values.values()]
    if not complete:
        captions_are = (
            "the only caption is" if len(too_long) == 1 else f"all {len(too_long):,} captions are"
        )
        raise BiasError(
            f"{table.path}: {captions_are} longer than the {model.tokenizer.max_tokens:,} tokens "
            f"that {model.name} can read"
        )
    scored = table.select(table.columns, complete)
    tokens = zip(scored["id"], encoder.count_tokens(scored["caption"]), strict=True)
    result = CaptionScores(
        scored=len(complete),
        without_variants=captions.without_variants,
        too_long=[table["id"][row] for row in too_long],
        cut=[item for item, count in tokens if count > encoder.max_tokens],
    )
    columns: dict[str, Sequence[str]] = dict(scored.columns)
    for suffix, texts in captions.texts.items():
        if suffix:
            columns[f"caption{suffix}"] = [texts[row] for row in complete]
        for name in (f"probability{suffix}", f"similarity{suffix}"):
            columns[name] = [repr(scores[row][name]) for row in complete]
    about = {
        "language_model": dict(model.about),
        "sentence_encoder": dict(encoder.about),
        **asdict(result),
    }
    files = {output: format_spreadsheet(columns), record: to_json(about)}
    write_files(files, overwrite=overwrite, first_is_described=True)
    return result


def _problems(table: Table, with_variants: bool) -> Iterator[tuple[int, str]]:
    seen: set[str] = set()
    for row, cells in enumerate(table.rows()):
        item, share = cells["id"], cells.get("confidence", "0")
        empty = [name for name in ("id", "caption", "object") if not cells[name].strip()]
        if empty:
            yield row, f"{shorten(item)} has no {empty[0]}"
        elif item in seen:
            yield row, f"duplicate id {shorten(item)}"
        elif MASK in cells["caption"] and not with_variants:
            yield row, f"the caption of {item} has {MASK}; fill the mask with --variants"
        elif not _is_share(share):
            value = shorten(share)
            yield row, f"the confidence of {item} must be a number from 0 to 1 (got {value})"
        seen.add(item)


def _is_share(cell: str) -> bool:
    try:
        return 0 <= float(cell) <= 1
    except ValueError:
        return False


def _score(
    captions: Captions, rows: Sequence[int], model: LanguageModel, encoder: SentenceEncoder
) -> list[Scores]:
    """Return the scores of these rows, scoring each distinct text once."""
    texts_of = [{end: texts[row] for end, texts in captions.texts.items()} for row in rows]
    objects = [captions.table["object"][row] for row in rows]
    texts = list(dict.fromkeys(text for row in texts_of for text in row.values()))
    probabilities = dict(zip(texts, model.mean_probabilities(texts), strict=True))
    texts_and_objects = list(dict.fromkeys([*texts, *objects]))
    embeddings = encoder.embed(texts_and_objects).double().numpy()
    vectors = dict(zip(texts_and_objects, embeddings, strict=True))
    scores: list[Scores] = []
    for row, label in zip(texts_of, objects, strict=True):
        values: Scores = {f"probability{end}": probabilities[text] for end, text in row.items()}
        for end, text in row.items():
            # Rounding may make the cosine of equal vectors slightly more than 1.
            cosine = min(1.0, max(-1.0, float(vectors[text] @ vectors[label])))
            values[f"similarity{end}"] = cosine
        scores.append(values)
    return scores
