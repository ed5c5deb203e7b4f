"""``obygaze bias ratings``: shares labelled as sexualised, and how far raters agree."""

from __future__ import annotations

from dataclasses import asdict
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
    from obygaze_models.bias.ratings import Share
    from obygaze_models.bias.reliability import Pair

__all__ = ["ratings"]


@click.command()
@folder_argument("table")
@click.option(
    "--rater",
    "raters",
    multiple=True,
    help="Only this column; may be given again. The five probabilities' is called classifier.",
)
@outputs_option
@overwrite_option
@json_option
def ratings(
    table: Path,
    raters: tuple[str, ...],
    outputs: tuple[Path, ...],
    overwrite: bool,
    as_json: bool,
) -> None:
    """Tell which share of each group's images a TABLE labels as sexualised, and how reliably.

    The TABLE has image_id, group, and a column of labels a rater (1 or 0, yes or no, or one of
    drawings, hentai, neutral, porn, sexy), or five columns of a classifier's probabilities for
    these. Porn, sexy and hentai are sexualised. Shares have Wilson's 95%; of two raters or more
    there is Cronbach's alpha.

    \b
    Examples:
      obygaze bias ratings labels.csv -o shares.csv -o shares.svg
      obygaze bias ratings labels.csv --rater ann --rater ben --json
    """
    from obygaze_features.common.text import counted
    from obygaze_models.bias.figures import shares_figure
    from obygaze_models.bias.ratings import read_ratings, shares_of
    from obygaze_models.bias.reliability import cronbach_alpha, pairs_of

    check_outputs(outputs, overwrite=overwrite)
    read = read_ratings(table, raters)
    shares = shares_of(read)
    alpha = cronbach_alpha(read.sexualised) if len(read.raters) > 1 else None
    pairs = pairs_of(read.raters, read.sexualised)
    rows = [asdict(share) for share in shares]
    content = {
        "images": len(read.images),
        "raters": list(read.raters),
        "shares": rows,
        "alpha": alpha,
        "pairs": [asdict(pair) for pair in pairs],
    }
    if as_json:
        echo_json(content)
    else:
        _echo(shares)
        if pairs:
            _echo_reliability(f"all {len(read.raters)}", alpha, pairs)
    if read.uneven:
        click.secho(
            f"NOTE: the probabilities of {counted(read.uneven, 'image')} do not sum to about 1; "
            "the most probable class was taken all the same",
            fg="yellow",
            err=True,
        )
    write_outputs(
        outputs,
        rows,
        content,
        lambda: shares_figure(shares),
        overwrite=overwrite,
        quiet=as_json,
    )


def _echo(shares: list[Share]) -> None:
    from obygaze_features.common.tables import align

    rows = [
        [
            one.group,
            one.rater,
            f"{one.count:,}",
            f"{one.images:,}",
            f"{one.share:.1%}",
            f"{one.low:.1%} to {one.high:.1%}",
        ]
        for one in shares
    ]
    click.echo(align(["group", "rater", "sexualised", "images", "share", "95%"], rows, left=2))


def _echo_reliability(everyone: str, alpha: float | None, pairs: list[Pair]) -> None:
    from obygaze_features.common.tables import align

    rows = [
        [f"{one.first}, {one.second}", _number(one.alpha), f"{one.agreement:.1%}"] for one in pairs
    ]
    if len(pairs) > 1:
        rows.insert(0, [everyone, _number(alpha), ""])
    click.echo()
    click.echo(align(["raters", "Cronbach's alpha", "same label"], rows))


def _number(alpha: float | None) -> str:
    return "-" if alpha is None else f"{alpha:.6f}"
