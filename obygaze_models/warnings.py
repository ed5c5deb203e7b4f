"""What a reader must know before a result, as data: a code, what it is about, and a sentence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from obygaze_features.manifests import Items

__all__ = ["RunWarning", "synthetic_warnings", "unique_warnings"]

_HEADINGS = {
    "synthetic": "Not a real result: ",
    "leak": "LEAKAGE: ",
    "skipped": "SKIPPED: ",
    "concepts": "CONCEPTS: ",
}
"""How the line of a warning begins, by its code, so that it can be searched for."""


@dataclass(frozen=True)
class RunWarning:
    """Something that limits what may be concluded.

    Parameters
    ----------
    code
        Its kind: ``synthetic``, ``leak``, ``skipped``, ``concepts``, ``released-concepts``,
        ``no-features`` or ``untested``.
    subject
        The task, estimator or test set that it is about; empty for the whole run.
    text
        A sentence. Nobody reads facts out of it: what a program needs is in `code` and `subject`.
    """

    code: str
    subject: str
    text: str

    def __str__(self) -> str:
        return _HEADINGS.get(self.code, "") + self.text


def synthetic_warnings(
    items: Items, backbone: Mapping[str, Any], earlier: Iterable[RunWarning] = ()
) -> list[RunWarning]:
    """What must be said before anything on these features; nothing if they are of real clips.

    Parameters
    ----------
    items
        The clips.
    backbone
        What a store says of its backbone.
    earlier
        Warnings of a model, say; they come first, and none comes twice.
    """
    reasons = {
        "clips are": " / ".join(dict.fromkeys(filter(None, items.extra.get("synthetic", [])))),
        "backbone is": backbone.get("config", {}).get("synthetic"),
    }
    return unique_warnings(
        [
            *earlier,
            *(
                RunWarning("synthetic", "", f"the {subject} synthetic ({reason}).")
                for subject, reason in reasons.items()
                if reason
            ),
        ]
    )


def unique_warnings(warnings: Iterable[RunWarning]) -> list[RunWarning]:
    """Each warning once, in order."""
    return list(dict.fromkeys(warnings))
