"""``obygaze bias ratings``: shares labelled as sexualised, and how far raters agree."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from obygaze_features.common.commands import (
    echo_json,
    folder_argument,
    json_option,
    overwrite_option,
)
from obygaze_models.commands.bias_outputs import check_outputs, outputs_option, write_outputs

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

    The TABLE has image_id, group, and a column of labels a rater (1 or 0; drawings, hentai, neutral,
    porn, sexy), or five columns of a classifier's probabilities for these. Porn, sexy and hentai
    are sexualised. Shares have Wilson's 95%; two raters or more have Cronbach's alpha.

    \b
    Examples:
      obygaze bias ratings labels.csv -o shares.csv -o shares.svg
      obygaze bias ratings labels.csv --rater ann --rater ben --json
    """
    from obygaze_features.common.tables import align
    from obygaze_models.bias.figures import shares_figure
    from obygaze_models.bias.ratings import read_ratings, shares_of
    from obygaze_models.bias.reliability import cronbach_alpha, pairs_of

    check_outputs(outputs, overwrite=overwrite)
    read = read_ratings(table, raters)
    shares = shares_of(read)
    several = len(read.raters) > 1
    alpha = cronbach_alpha(read.sexualised) if several else None
    pairs = pairs_of(read.raters, read.sexualised)
    content = {
        "images": len(read.images),
        "raters": list(read.raters),
        "shares": [asdict(share) for share in shares],
        "alpha": alpha,
        "pairs": [asdict(pair) for pair in pairs],
    }
    if as_json:
        echo_json(content)
    else:
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
        header = ["group", "rater", "sexualised", "images", "share", "95%"]
        click.echo(align(header, rows, left=2))
    if not as_json and several:
        said = [
            [f"all {len(read.raters)} raters", _number(alpha), ""],
            *(
                [f"{one.first}, {one.second}", _number(one.alpha), f"{one.agreement:.1%}"]
                for one in pairs
                if len(pairs) > 1
            ),
        ]
        if len(pairs) == 1:
            said[0][2] = f"{pairs[0].agreement:.1%}"
        click.echo()
        click.echo(align(["raters", "Cronbach's alpha", "same label"], said))
    write_outputs(
        outputs,
        content["shares"],
        content,
        lambda: shares_figure(shares),
        overwrite=overwrite,
        quiet=as_json,
    )


def _number(alpha: float | None) -> str:
    return "-" if alpha is None else f"{alpha:.6f}"
