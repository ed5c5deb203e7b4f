"""Score captions by their probability and their similarity to an object, for gender scores."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from obygaze_features.common.files import refuse_to_overwrite, to_json, write_files
from obygaze_features.common.package import reference_json
from obygaze_features.common.progress import progress
from obygaze_features.common.tables import format_rows, read_table
from obygaze_features.errors import BiasError, UsageError
from obygaze_features.language.models import (
    LanguageModel,
    SentenceEncoder,
    load_language_model,
    load_sentence_encoder,
)
from obygaze_features.manifests.labels import read_ids

MASK = "[MASK]"
"""The placeholder for a caption's gendered word."""

_NOUNS: Mapping[tuple[str, str], str] = {
    ("man", "woman"): "man boy guy gentleman woman girl lady",
    ("men", "women"): "men boys guys gentlemen women girls ladies",
    ("male", "female"): "male female",
    ("males", "females"): "males females",
}
"""Pairs of nouns for men and women, and the words that each pair replaces."""
_PAIRS = {word: pair for pair, words in _NOUNS.items() for word in words.split()}
ROWS_PER_STEP = 64
_OUTPUT_COLUMN = re.compile(r"(probability|similarity)(_man|_woman)?|caption_(man|woman)")


def score_captions(
    path: Path,
    output: Path,
    *,
    language_model: str | Path = "gpt2",
    sentence_encoder: str | Path = "roberta-large-nli-stsb-mean-tokens",
    variants: bool = False,
    device: str | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Score captions, and write a CSV table of scores and a JSON record of the models.

    Parameters
    ----------
    path
        A CSV table with ``id``, ``caption`` and ``object``; other columns are kept.
    output
        The table of scores. The record has the same name, but ends in ``.json``.
    language_model, sentence_encoder, device
        See `load_language_model` and `load_sentence_encoder`.
    variants
        Score each caption with "man" and with "woman"; see `make_variants`. The captions themselves
        are scored only if none of them has a mask.

    Returns
    -------
    dict
        The record: the two models, the number of ``scored`` captions, and the ids of captions
        ``without_variants`` (left out), ``too_long`` for the language model (left out), and ``cut``
        at the sentence encoder's maximum length.
    """
    record = output.with_suffix(".json")
    if len({path.resolve(), output.resolve(), record.resolve()}) < 3:
        raise UsageError(f"{path}, {output} and {record} must differ; rename the output")
    refuse_to_overwrite(output, overwrite=overwrite)
    refuse_to_overwrite(record, overwrite=overwrite)

    rows = _read_captions(path, variants)
    without_variants = []
    suffixes = [""]
    if variants:
        without_variants = [row["id"] for row in rows if "caption_man" not in row]
        rows = [row for row in rows if "caption_man" in row]
        suffixes = ["_man", "_woman"]
        # A caption with a mask is not a proper text, so only its variants are scored.
        if not any(MASK in row["caption"] for row in rows):
            suffixes.insert(0, "")
    if not rows:
        raise BiasError(
            f"{path}: no captions to score. With --variants, put {MASK} in the captions"
        )
    model = load_language_model(language_model, device)
    encoder = load_sentence_encoder(sentence_encoder, device)
    for start in progress(range(0, len(rows), ROWS_PER_STEP), "Scoring", unit="block"):
        _score(rows[start : start + ROWS_PER_STEP], suffixes, model, encoder)

    scored = [row for row in rows if None not in row.values()]
    about = {
        "language_model": model.about,
        "sentence_encoder": encoder.about,
        "scored": len(scored),
        "without_variants": without_variants,
        "too_long": [row["id"] for row in rows if None in row.values()],
        "cut": [row["id"] for row in scored if encoder.cuts(row["caption"])],
    }
    files = {output: format_rows(scored, number=repr), record: to_json(about)}
    write_files(files, overwrite=overwrite)
    return about


def _read_captions(path: Path, variants: bool) -> list[dict[str, Any]]:
    """Read and check the captions; with `variants`, add the variants of captions that have them."""
    required = ("id", "caption", "object")
    table = read_table(path, delimiter=None, required=required)
    for name in table.columns:
        if _OUTPUT_COLUMN.fullmatch(name):
            raise BiasError(f"{path}, line 1: the column name {name!r} is reserved; rename it")
    table.check_cells(*required)
    read_ids(table)
    rows: list[dict[str, Any]] = list(table.rows())
    for number, row in enumerate(rows):
        pair = make_variants(row["caption"])
        if variants and pair:
            row["caption_man"], row["caption_woman"] = pair
        elif MASK in row["caption"]:
            raise table.problem(number, f"the caption has {MASK}; fill the mask with --variants")
    return rows


def _score(
    rows: Sequence[dict[str, Any]],
    suffixes: Sequence[str],
    model: LanguageModel,
    encoder: SentenceEncoder,
) -> None:
    """Add the scores to rows, scoring each distinct text once."""
    found: dict[str, None] = {}
    for end in suffixes:
        found |= dict.fromkeys(row["caption" + end] for row in rows)
    texts = list(found)
    probability_of = dict(zip(texts, model.mean_probabilities(texts), strict=True))

    found |= dict.fromkeys(row["object"] for row in rows)
    texts = list(found)
    vectors = encoder.embed(texts).double().numpy()
    vector_of = dict(zip(texts, vectors, strict=True))
    for row in rows:
        for end in suffixes:
            caption = row["caption" + end]
            row["probability" + end] = probability_of[caption]
            # Rounding may make the cosine of equal vectors slightly more than 1.
            cosine = float(vector_of[caption] @ vector_of[row["object"]])
            row["similarity" + end] = min(1.0, max(-1.0, cosine))


def make_variants(caption: str) -> tuple[str, str] | None:
    """Return a caption with "man" and with "woman" in place of `MASK` or its gendered nouns.

    Return None if the caption has no such noun, nouns for both genders, or another gendered word
    that would also have to change (such as a pronoun). You can put `MASK` into such captions
    yourself.

    Examples
    --------
    >>> make_variants("two boys on a road")
    ('two men on a road', 'two women on a road')
    >>> make_variants("a [MASK] riding a motorcycle")
    ('a man riding a motorcycle', 'a woman riding a motorcycle')
    >>> make_variants("a girl with her dog") is None
    True
    """
    if MASK in caption:
        return caption.replace(MASK, "man"), caption.replace(MASK, "woman")
    gender_of, gender_word = _gender_words()
    words = {word.lower() for word in gender_word.findall(caption)}
    genders = set(map(gender_of.get, words))
    if not words <= _PAIRS.keys() or len(genders) != 1:
        return None

    def fill(index: int) -> str:
        return gender_word.sub(lambda word: _exchange(word[0], index), caption)

    return fill(0), fill(1)


@cache
def _gender_words() -> tuple[dict[str, str], re.Pattern[str]]:
    """Return the gender of each gendered word, and a pattern that matches these words."""
    lexicon = reference_json("lexicons/genders.json")["words"]
    gender_of = {word: gender for gender, words in lexicon.items() for word in words}
    return gender_of, re.compile(rf"\b(?:{'|'.join(gender_of)})\b", re.IGNORECASE)


def _exchange(word: str, index: int) -> str:
    """Return the male (0) or female (1) counterpart of a noun, in the same case."""
    other = _PAIRS[word.lower()][index]
    if word.isupper():
        return other.upper()
    if word[0].isupper():
        return other.capitalize()
    return other
