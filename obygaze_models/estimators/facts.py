"""The types of what an estimator's ``facts_`` contain about concepts."""

from __future__ import annotations

import msgspec


class _FactsWarning(msgspec.Struct):
    subject: str
    text: str


class _Quality(msgspec.Struct):
    auc: float


class Facts(msgspec.Struct):
    """An estimator's facts about concepts. Other facts are numbers or text for readers."""

    concepts: dict[str, _Quality] = {}
    skipped: dict[str, str] = {}
    warnings: list[_FactsWarning] = []

    @property
    def unreliable(self) -> list[str]:
        """The concepts whose directions are unreliable; `warnings` has the reasons."""
        subjects = {warning.subject for warning in self.warnings}
        return [name for name in self.concepts if name in subjects]
