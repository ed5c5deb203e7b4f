"""The English indefinite article: "an" before a vowel that is heard."""

from __future__ import annotations

import re
import unicodedata

from obygaze_features.errors import UsageError

__all__ = ["ARTICLES", "with_article"]

ARTICLES = {
    "sound": "an before a vowel that is heard: an hour, a university",
    "letter": "an before a letter that is a vowel: a hour, an university",
    "always-a": "a before everything, as in a engineer",
}
_BEFORE = re.compile(r"\b([Aa])n? \{\}")
_SILENT_H = re.compile(r"hour|honest|honou?r|heir")
#: Words that begin with a vowel, and are spoken with y or w before it.
_GLIDE = re.compile(
    r"eu|ewe|oui|ubi|uk|ur[aeio]|urug|us[aeu]|ut[eio]|uvu"
    r"|unanim|unary|unesco|unidir|uni(?![dmn])|one\b|once\b"
)
#: Letters whose names begin with a vowel.
_SPELLED = frozenset("aefhilmnorsx")
_VOWELS = frozenset("aeiou")
_NUMBER = re.compile(r"(\d{1,3})((?:,?\d{3})*)(?!\d)")


def with_article(template: str, stimulus: str, article: str = "sound") -> str:
    """A template with a stimulus in its place, and the article before it as it fits.

    Parameters
    ----------
    template
        Has ``{}`` once; an ``a`` or ``an`` right before it is what is fitted.
    stimulus
        A word, or several.
    article
        One of `ARTICLES`.

    Examples
    --------
    >>> with_article("a photo of a {}", "engineer")
    'a photo of an engineer'
    >>> with_article("a {}", "engineer", "always-a")
    'a engineer'
    """
    if template.count("{}") != 1:
        raise UsageError(f"the template {template!r} needs the place of the stimulus, {{}}, once")
    if article not in ARTICLES:
        raise UsageError(f"{article!r} is no way to write articles; take {', '.join(ARTICLES)}")
    first = re.sub(r"^\W+", "", stimulus)
    heard = {
        "sound": _begins_with_vowel(first),
        "letter": first.lower().startswith(tuple(_VOWELS)),
        "always-a": False,
    }[article]
    fitted = _BEFORE.sub(lambda found: f"{found[1]}{'n' if heard else ''} {{}}", template)
    return fitted.replace("{}", stimulus)


def _begins_with_vowel(text: str) -> bool:
    """Whether what is spoken begins with a vowel."""
    if found := _NUMBER.match(text):
        # eight, eighty, eleven and eighteen, also as thousands
        return found[1].startswith("8") or found[1] in ("11", "18")
    plain = unicodedata.normalize("NFKD", text)
    word = (re.match(r"[^\W_]+", "".join(filter(str.isascii, plain))) or [""])[0]
    lower = word.lower()
    # X-ray, MP, FBI and LGBT are spelled; NASA is read.
    if len(word) == 1 or (word.isupper() and (len(word) < 4 or not set(lower) & _VOWELS)):
        return lower[0] in _SPELLED
    if lower.startswith("h"):
        return _SILENT_H.match(lower) is not None
    return lower.startswith(tuple(_VOWELS)) and _GLIDE.match(lower) is None
