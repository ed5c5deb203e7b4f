"""``obygaze bias gender-score``: how far objects support the gender that captions say."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from obygaze_features.common.cli import (
    echo_json,
    folder_argument,
    json_option,
    overwrite_option,
)
from obygaze_models.commands.bias_outputs import check_outputs, outputs_option, write_outputs

if TYPE_CHECKING:
    from obygaze_models.bias.gender_table import ObjectScores

__all__ = ["gender_score"]

_COLUMNS = {
    "said": ("said: man", "woman"),
    "filled": ("filled in: man", "woman"),
    "assigned": ("assigned: man", "woman", "tied"),
    "cooccurrence": ("captions of: man", "woman", "neither"),
}


@click.command("gender-score")
@folder_argument("scores")
@click.option(
    "--cooccurrence", is_flag=True, help="Only the baseline, which takes no scores of captions."
)
@outputs_option
@overwrite_option
@json_option
def gender_score(
    scores: Path,
    cooccurrence: bool,
    outputs: tuple[Path, ...],
    overwrite: bool,
    as_json: bool,
) -> None:
    """Measure the gender score of captions and objects, beside how often these go together.

    SCORES are a CSV table, by obygaze features caption-scores or your own: confidence (or P(c)),
    with probability (P), similarity (sim) and group (man or woman; else the caption tells) of what
    is said, or probability_man, similarity_man, probability_woman and similarity_woman of both
    variants. With object, there is a line an object. A .csv output has a row a caption, .json all
    there is.

    \b
    Examples:
      obygaze bias gender-score scores.csv -o by-caption.csv -o leanings.svg
      obygaze bias gender-score captions.csv --cooccurrence --json
    """
    from obygaze_models.bias.figures import leanings_figure
    from obygaze_models.bias.gender_table import all_objects, by_object, read_caption_scores

    check_outputs(outputs, overwrite=overwrite)
    read = read_caption_scores(scores, baseline=cooccurrence)
    objects, together = by_object(read), all_objects(read)
    rows = read.rows()
    content = {
        "all": together.flat(),
        "objects": [one.flat() for one in objects],
        "captions": rows,
    }
    if as_json:
        echo_json(content)
    else:
        _echo(objects, together)
    write_outputs(
        outputs,
        rows,
        content,
        lambda: leanings_figure(objects or [together]),
        overwrite=overwrite,
        quiet=as_json,
    )


def _echo(objects: list[ObjectScores], together: ObjectScores) -> None:
    from obygaze_features.common.tables import align
    from obygaze_models.bias.cooccurrence import truncated
    from obygaze_models.bias.figures import MOST

    header, rows = ["object", "captions"], []
    for name, columns in _COLUMNS.items():
        header += [*columns, "to-m"] if getattr(together, name) else []
    for one in [*objects[:MOST], together]:
        row = [one.object, f"{one.captions:,}"]
        for name, columns in _COLUMNS.items():
            if (of := getattr(one, name)) is not None:
                row += [_number(part) for part in (of.man, of.woman, of.neither)[: len(columns)]]
                row.append(truncated(of.to_man))
        rows.append(row)
    click.echo(align(header, rows))
    if len(objects) > MOST:
        click.echo(f"and {len(objects) - MOST:,} more objects; all of them with: -o NAME.json")
    click.echo("to-m: man / (man + woman), cut to two decimals as the published table is.")


def _number(value: int | float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}"
