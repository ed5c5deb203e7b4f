"""A caption's variants: about a man, and about a woman."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from obygaze_features.common.package import reference_json

MASK = "[MASK]"
"""Marks the place of a caption's gender word."""

_NOUNS: Mapping[tuple[str, str], str] = {
    ("man", "woman"): "man boy guy gentleman woman girl lady",
    ("men", "women"): "men boys guys gentlemen women girls ladies",
    ("male", "female"): "male female",
    ("males", "females"): "males females",
}
"""The nouns for a man and for a woman, and the words that they replace."""
_PAIRS = {word: pair for pair, words in _NOUNS.items() for word in words.split()}


@dataclass(frozen=True)
class Variants:
    """A caption about a man, and the same about a woman."""

    man: str
    woman: str


def make_variants(caption: str) -> Variants | None:
    """A caption with man and with woman in place of `MASK`, or else of its nouns for people.

    None for a caption without such a noun, with nouns for both, or with another word of gender
    (a pronoun, say) that would have to change too: put `MASK` into such a caption yourself.

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
            lambda match: _match_case(_PAIRS[match[0].lower()][index], match[0]), caption
        )

    return Variants(fill(0), fill(1))


@cache
def _gender_words() -> tuple[dict[str, str], re.Pattern[str]]:
    """Word -> gender, and the pattern of these words."""
    lexicon = reference_json("lexicons/genders.json")["words"]
    gender_of = {word: gender for gender, words in lexicon.items() for word in words}
    return gender_of, re.compile(rf"\b(?:{'|'.join(gender_of)})\b", re.IGNORECASE)


def _match_case(word: str, original: str) -> str:
    if original.isupper():
        return word.upper()
    return word.capitalize() if original[0].isupper() else word
