"""Warnings as data: what a reader must know before using a number."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Warning:  # noqa: A001
    """One warning; it becomes a sentence only where it is printed.

    Parameters
    ----------
    code
        A short fixed word for its kind, by which programs look for it: ``concepts-unreliable``.
    subject
        The task, estimator, concept or film that it is about; or empty.
    text
        A sentence for people.
    """

    code: str
    subject: str
    text: str
