"""What importers share: list literals, the options of their commands, the closing words."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from obygaze_features.common.commands import overwrite_option
from obygaze_features.errors import ManifestError
from obygaze_features.manifests.manifest import Manifest

__all__ = ["finish", "output_options", "parse_list", "source_argument"]

F = TypeVar("F", bound=Callable[..., Any])

_STRING = r"'(?:[^'\\]|\\.)*+'|\"(?:[^\"\\]|\\.)*+\""
_LIST = re.compile(rf"\[\s*(?:(?:{_STRING})\s*(?:,\s*(?:{_STRING})\s*)*+)?\]")
_STRINGS = re.compile(_STRING)

source_argument = click.argument("source", type=click.Path(path_type=Path))


def parse_list(text: str) -> list[str]:
    """The strings of a list literal as Python prints it; parsed, never evaluated.

    Examples
    --------
    >>> parse_list("['Speech', ' Exp of  emotion']")
    ['Speech', 'Exp of emotion']
    >>> parse_list("['']")
    []
    """
    if _LIST.fullmatch(text.strip()) is None:
        raise ManifestError(f"{text!r} is not a list such as ['Body', 'Look']")
    strings = (" ".join(found[1:-1].split()) for found in _STRINGS.findall(text))
    return [string for string in strings if string]


def output_options(default: str) -> Callable[[F], F]:
    """The options ``--output`` and ``--overwrite``."""

    def decorate(function: F) -> F:
        output = click.option(
            "-o",
            "--output",
            type=click.Path(path_type=Path),
            default=Path("manifests", default),
            show_default=True,
            help="The manifest's folder.",
        )
        decorated: F = output(overwrite_option(function))
        return decorated

    return decorate


def finish(manifest: Manifest, output: Path, *, overwrite: bool, notes: Sequence[str] = ()) -> None:
    """Save a new manifest and say what it holds, where it lies and what to do next."""
    manifest.save(output, overwrite=overwrite)
    kinds = "clips" if set(manifest.items.kinds) <= {"clip"} else "items"
    films = len(set(manifest.items.films) - {""})
    click.echo(f"{len(manifest):,} {kinds} of {films} films -> {output}")
    if manifest.label_names:
        names = [
            f"{n} (default)" if n == manifest.default_labels else n for n in manifest.label_names
        ]
        click.echo(f"label sets: {', '.join(names)}")
    for note in notes:
        click.echo(note)
    step = "stats" if manifest.label_names else "show"
    click.echo(f"next: obygaze manifests {step} {output}")
