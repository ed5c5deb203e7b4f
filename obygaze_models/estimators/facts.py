"""What an estimator's ``facts_`` say of concepts, as types."""

from __future__ import annotations

import msgspec


class _FactsWarning(msgspec.Struct):
    subject: str
    text: str


class _Quality(msgspec.Struct):
    auc: float


class Facts(msgspec.Struct):
    """What an estimator's fit says of concepts; other facts are numbers or words for people."""

    concepts: dict[str, _Quality] = {}
    skipped: dict[str, str] = {}
    warnings: list[_FactsWarning] = []

    @property
    def unreliable(self) -> list[str]:
        """The concepts whose directions are unreliable; `warnings` has the reason of each."""
        subjects = {warning.subject for warning in self.warnings}
        return [name for name in self.concepts if name in subjects]
