"""What the commands on bias share: ``-o`` for a table, a JSON file or a figure, by its name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from obygaze_features.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["check_outputs", "outputs_option", "write_outputs"]

_FIGURES = (".svg", ".pdf", ".png")
_SUFFIXES = (".csv", ".json", *_FIGURES)

outputs_option = click.option(
    "-o",
    "--output",
    "outputs",
    multiple=True,
    type=click.Path(path_type=Path),
    help="A .csv or .json table, or an .svg, .pdf or .png figure; several if you like.",
)


def check_outputs(outputs: Sequence[Path], *, overwrite: bool) -> None:
    """Refuse names that say no kind of file, and files that are there, before any work is done."""
    from obygaze_features.common.files import refuse_to_overwrite

    for path in outputs:
        if path.suffix not in _SUFFIXES:
            raise UsageError(f"{path}: the name ends in {', '.join(_SUFFIXES)}")
        refuse_to_overwrite(path, overwrite=overwrite)


def write_outputs(
    outputs: Sequence[Path],
    rows: Sequence[dict[str, Any]],
    content: dict[str, Any],
    figure: Callable[[], Figure],
    *,
    overwrite: bool,
    quiet: bool,
) -> None:
    """Write rows as CSV, all content as JSON, and the figure, as the names say."""
    from obygaze_features.common.files import to_json, write_text
    from obygaze_models.bias.tables import cells
    from obygaze_models.figures import save_figure

    for path in dict.fromkeys(outputs):
        if path.suffix in _FIGURES:
            save_figure(figure(), path, overwrite=overwrite)
        else:
            write_text(path, to_json(content) if path.suffix == ".json" else cells(rows))
        click.echo(f"Wrote {path}", err=quiet)
