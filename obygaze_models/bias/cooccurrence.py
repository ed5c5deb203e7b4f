"""How often an object and a gender are named together: the baseline of the gender score."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import ROUND_DOWN, Decimal

from obygaze_models.bias.lexicon import Lexicon, tokens

__all__ = ["BOTH", "GENDERS", "NEITHER", "Leaning", "cooccurrences", "gender_of", "truncated"]

GENDERS = ("man", "woman")
BOTH, NEITHER = "both", "neither"


@dataclass(frozen=True)
class Leaning:
    """What stands for man and for woman, and what is left for neither.

    `to_man` is man / (man + woman); None where both are 0 or one is unknown.
    """

    man: float | None
    woman: float | None
    neither: int = 0

    @property
    def to_man(self) -> float | None:
        """The share of man.

        Examples
        --------
        >>> truncated(Leaning(616, 217).to_man)
        '.73'
        """
        if self.man is None or self.woman is None or not self.man + self.woman:
            return None
        return self.man / (self.man + self.woman)


def truncated(ratio: float | None) -> str:
    """A ratio as the published table has it: two decimals, and what follows is cut off.

    Examples
    --------
    >>> truncated(0.7395), truncated(0.29), truncated(1.0), truncated(None)
    ('.73', '.29', '1.00', '-')
    """
    if ratio is None:
        return "-"
    cut = Decimal(repr(ratio)).quantize(Decimal("0.01"), rounding=ROUND_DOWN)
    return str(cut).removeprefix("0")


def gender_of(caption: str, lexicon: Lexicon) -> str:
    """Whose words a caption has: man, woman, `BOTH` or `NEITHER`.

    Examples
    --------
    >>> from obygaze_models.bias.lexicon import shipped_lexicon
    >>> genders = shipped_lexicon("genders")
    >>> gender_of("A woman, riding a horse.", genders), gender_of("a horse", genders)
    ('woman', 'neither')
    """
    said = set(tokens(caption))
    named = [gender for gender in GENDERS if not said.isdisjoint(lexicon.words[gender])]
    return BOTH if len(named) == 2 else named[0] if named else NEITHER


def cooccurrences(objects: Sequence[str], genders: Iterable[str]) -> dict[str, Leaning]:
    """How many captions of each object are of a man, and of a woman."""
    counts: dict[str, list[int]] = {one: [0, 0, 0] for one in objects}
    place = {gender: at for at, gender in enumerate(GENDERS)}
    for one, gender in zip(objects, genders, strict=True):
        counts[one][place.get(gender, 2)] += 1
    return {one: Leaning(*of) for one, of in counts.items()}
