"""Warnings about results, as data: a code, a subject, and a sentence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from obygaze_features.common.formatting import join_some

if TYPE_CHECKING:
    from obygaze_features.manifests import Items


_FIRST = ("synthetic", "leak", "skipped")
"""Warnings with these codes can change a conclusion. They are printed first."""

_HEADINGS = {
    "synthetic": "Not a real result: ",
    "leak": "LEAKAGE: ",
    "skipped": "SKIPPED: ",
    "concepts": "CONCEPTS: ",
}
"""The headings of warnings, by code. Other kinds of warnings have no heading."""


@dataclass(frozen=True)
class RunWarning:
    """A warning that limits the conclusions from a result.

    Parameters
    ----------
    code
        The kind of warning, such as ``synthetic``, ``unknown-origin``, ``leak`` or ``skipped``.
    subject
        The task, estimator, test set, level or concept that the warning is about; empty for the
        whole run.
    text
        A sentence for readers. Programs should use `code` and `subject`.
    """

    code: str
    subject: str
    text: str

    def __str__(self) -> str:
        return _HEADINGS.get(self.code, "") + self.text

    @property
    def is_about_origin(self) -> bool:
        """True if the warning is of synthetic clips or features, or features of unknown origin."""
        return self.code in ("synthetic", "unknown-origin")


def origin_warnings(
    items: Items,
    store: Mapping[str, Any] = {},
    earlier: Iterable[RunWarning] = (),
) -> list[RunWarning]:
    """Return warnings about clips or features that are synthetic or of unknown origin.

    The origin of features is unknown if neither weights nor preprocessing were recorded.

    Parameters
    ----------
    items
        The clips.
    store
        The attributes of the feature store; {} if there are no features.
    earlier
        Other warnings, such as a model's, to put first. Duplicates are dropped.
    """
    from obygaze_features.store.metadata import unknown_parts

    drawn = filter(None, items.extra.get("synthetic", []))
    reasons = {"clips are": " / ".join(dict.fromkeys(drawn))}
    pairs: Iterable[Any] = ()
    if store:
        reasons["backbone is"] = store["backbone"].get("config", {}).get("synthetic")
        recipes = [
            store[name].get("parts", [store[name]]) for name in ("backbone", "preprocessing")
        ]
        pairs = zip(*recipes, strict=True)
    warnings = [*earlier]
    for subject, reason in reasons.items():
        if reason:
            text = f"the {subject} synthetic ({reason})."
            warnings.append(RunWarning("synthetic", "", text))
    for backbone, preprocessing in pairs:
        attributes = {**store, "backbone": backbone, "preprocessing": preprocessing}
        unknown = unknown_parts(attributes)
        if {"weights", "preprocessing"}.issubset(unknown):
            text = (
                f"the origin of the {backbone['name']} features was not recorded (unknown: "
                f"{join_some(unknown)}), so do not compare the scores with the paper's or another "
                "backbone's. If you know the origin, import the features again with a recipe."
            )
            warnings.append(RunWarning("unknown-origin", "", text))
    return unique_warnings(warnings)


def leak_warning(test: str, clips: str, fit: str) -> RunWarning:
    """Return a warning that test clips leaked; `clips` is like "3 of the 10 test clips"."""
    text = f"{clips} of {test} also took part in training or validating {fit}: scores are too high."
    return RunWarning("leak", test, text)


def group_warnings(warnings: Iterable[RunWarning | str]) -> list[str]:
    """Return the distinct warnings as lines; those that can change a conclusion come first.

    Examples
    --------
    >>> group_warnings(["3 clips left out", RunWarning("leak", "", "1 clip."), "3 clips left out"])
    ['LEAKAGE: 1 clip.', '3 clips left out']
    """

    def importance(warning: RunWarning | str) -> int:
        code = getattr(warning, "code", "")
        return _FIRST.index(code) if code in _FIRST else len(_FIRST)

    return list(dict.fromkeys(map(str, sorted(warnings, key=importance))))


def unique_warnings(warnings: Iterable[RunWarning]) -> list[RunWarning]:
    """Return the warnings in order, without duplicates."""
    return list(dict.fromkeys(warnings))
