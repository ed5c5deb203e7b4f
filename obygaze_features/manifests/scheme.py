"""Label schemes: which levels and concepts there are, and what else they are called."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from obygaze_features.common.package import reference_json
from obygaze_features.common.text import unknown_name
from obygaze_features.errors import ManifestError

__all__ = ["Concept", "LabelScheme", "Level", "name_key", "obygaze_scheme"]


@dataclass(frozen=True)
class Level:
    """A level of the scheme, from the least to the most objectifying."""

    code: str
    name: str
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class Concept:
    """A concept that annotators tick; `visual` ones can be seen in the frames."""

    name: str
    visual: bool = True
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class LabelScheme:
    """The levels, in ascending order, and the concepts of a label set."""

    name: str
    levels: tuple[Level, ...]
    concepts: tuple[Concept, ...] = field(default=())

    @property
    def codes(self) -> tuple[str, ...]:
        """The levels' codes, ascending."""
        return tuple(level.code for level in self.levels)

    @property
    def concept_names(self) -> tuple[str, ...]:
        """All concepts, in the scheme's order."""
        return tuple(concept.name for concept in self.concepts)

    @property
    def visual_concepts(self) -> tuple[str, ...]:
        """The concepts that can be seen in the frames."""
        return tuple(concept.name for concept in self.concepts if concept.visual)

    def level(self, text: str) -> str:
        """The code of a level by its code, name or any alias."""
        return _find(text, self._level_of, "label", [level.name for level in self.levels])

    def concept(self, text: str) -> str:
        """The name of a concept by its name or any alias."""
        return _find(text, self._concept_of, "concept", self.concept_names)

    def in_order(self, names: Iterable[str]) -> tuple[str, ...]:
        """Concepts without repeats, in the scheme's order."""
        wanted = set(names)
        return tuple(name for name in self.concept_names if name in wanted)

    @cached_property
    def _level_of(self) -> dict[str, str]:
        return {
            name_key(text): level.code
            for level in self.levels
            for text in (level.code, level.name, *level.aliases)
        }

    @cached_property
    def _concept_of(self) -> dict[str, str]:
        return {
            name_key(text): concept.name
            for concept in self.concepts
            for text in (concept.name, *concept.aliases)
        }

    def __post_init__(self) -> None:
        if not self.levels:
            raise ManifestError(f"the label scheme {self.name!r} has no levels")
        for what, texts in (
            ("level", [(level.code, level.name, *level.aliases) for level in self.levels]),
            ("concept", [(concept.name, *concept.aliases) for concept in self.concepts]),
        ):
            seen: dict[str, tuple[str, ...]] = {}
            for group in texts:
                for text in group:
                    if not text.strip() or "|" in text:
                        raise ManifestError(f"{text!r} cannot name a {what}")
                    if seen.setdefault(name_key(text), group) is not group:
                        raise ManifestError(f"two {what}s are called {text!r} (case is ignored)")

    @classmethod
    def from_json(cls, value: Any) -> LabelScheme:
        """Read the form in which manifests and shipped files hold a scheme."""
        try:
            return cls(
                name=_text(value["name"]),
                levels=tuple(
                    Level(_text(level["code"]), _text(level["name"]), _texts(level))
                    for level in value["levels"]
                ),
                concepts=tuple(
                    Concept(_text(concept["name"]), concept.get("visual", True), _texts(concept))
                    for concept in value.get("concepts", ())
                ),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ManifestError(f"the label scheme is not in its form ({error})") from None

    def to_json(self) -> dict[str, Any]:
        """The form that `from_json` reads."""
        return {
            "name": self.name,
            "levels": [
                {"code": level.code, "name": level.name, "aliases": list(level.aliases)}
                for level in self.levels
            ],
            "concepts": [
                {"name": c.name, "visual": c.visual, "aliases": list(c.aliases)}
                for c in self.concepts
            ],
        }


def obygaze_scheme() -> LabelScheme:
    """The scheme of the ObyGaze12 paper: four levels, eight visual concepts, four others."""
    return LabelScheme.from_json(reference_json("scheme-obygaze.json"))


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    raise TypeError(f"{value!r} where a text is meant")


def _texts(value: Mapping[str, Any]) -> tuple[str, ...]:
    """The aliases of a level or concept."""
    aliases = value.get("aliases", [])
    if isinstance(aliases, list):
        return tuple(map(_text, aliases))
    raise TypeError(f"aliases {aliases!r} where a list is meant")


def name_key(text: str) -> str:
    """What names of levels and concepts have in common that are the same but for how one types.

    Examples
    --------
    >>> name_key("Easy  Negative") == name_key("easy_negative") == name_key("EASY-NEGATIVE")
    True
    >>> name_key("-1") == name_key("1")
    False
    """
    return " ".join(re.sub(r"(?<=\w)[_-]+(?=\w)", " ", text).split()).casefold()


def _find(text: str, known: dict[str, str], what: str, names: Sequence[str]) -> str:
    try:
        return known[name_key(text)]
    except KeyError:
        raise ManifestError(unknown_name(what, text, names)) from None
