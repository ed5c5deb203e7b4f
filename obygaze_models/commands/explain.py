"""``obygaze models explain``: why a saved model says what it says of clips."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from obygaze_features.common.cli import echo_json, folder_argument, json_option, store_argument
from obygaze_models.commands._shared import echo_warnings
from obygaze_models.warnings import RunWarning

if TYPE_CHECKING:
    from obygaze_models.explain.clips import ExplainedClip
    from obygaze_models.explain.contributions import Contribution

__all__ = ["explain"]

#: The longest bar. Plain signs, which every terminal and every file shows.
BAR = 24


@click.command()
@folder_argument("model")
@store_argument("store")
@click.argument("ids", metavar="ID...", nargs=-1, required=True)
@click.option(
    "--nearest",
    type=click.IntRange(min=0),
    default=5,
    show_default=True,
    help="How many of the store's other clips to list, the most alike first.",
)
@click.option(
    "--concepts",
    type=click.Path(path_type=Path),
    help="A saved bottleneck, by whose concepts a network is read.",
)
@json_option
def explain(
    model: Path,
    store: Path | str,
    ids: tuple[str, ...],
    nearest: int,
    concepts: Path | None,
    as_json: bool,
) -> None:
    """Say why a saved MODEL says what it says of clips of a STORE.

    A linear bottleneck shows each concept's part in the logit, a tree the path that the clip
    takes, a network how its logit depends on the concepts of --concepts.

    \b
    Examples:
      obygaze models explain runs/x/models/pcbm-tree/EN-vs-S-0 stores/xclip.zarr tt0108160-001
      obygaze models explain runs/x/models/mlp/EN-vs-S-0 stores/xclip.zarr tt0108160-001 \\
        --concepts runs/x/models/pcbm-tree/EN-vs-S-0 --nearest 10 --json
    """
    from dataclasses import asdict

    from obygaze_models.explain.clips import explain_clips
    from obygaze_models.persistence import read_about

    explained = explain_clips(model, store, ids, nearest=nearest, concepts=concepts)
    if as_json:
        echo_json([asdict(one) for one in explained])
    else:
        click.echo("\n\n".join(_in_words(one) for one in explained))
    echo_warnings(RunWarning(**one) for one in read_about(model).get("warnings", []))


def _in_words(clip: ExplainedClip) -> str:
    from obygaze_features.common.tables import align

    said = clip.explanation
    others = [f"{name} {of:.2f}" for name, of in said.probabilities.items() if name != said.label]
    sure = said.probabilities[said.label]
    lines = [f"{clip.id}: {said.label}, probability {sure:.2f} ({', '.join(others)})"]
    lines += _why(clip)
    if clip.nearest:
        table = align(
            ["nearest clips", "cosine"], [[one.id, f"{one.cosine:.3f}"] for one in clip.nearest]
        )
        lines += ["", *(f"  {line}" for line in table.splitlines())]
    return "\n".join(lines)


def _why(clip: ExplainedClip) -> list[str]:
    from obygaze_models.explain.contributions import Sensitivity, TreePath, WeightedSum

    why = clip.explanation.why
    if isinstance(why, TreePath):
        shares = ", ".join(f"{share:.0%} {name}" for name, share in why.shares.items())
        steps = [
            f"  {step.concept} measures {step.value:.3g}, "
            f"{'above' if step.above else 'not above'} {step.threshold:.3g}"
            for step in why.steps
        ]
        return [*steps, f"  the training clips that end there: {shares}"]
    if isinstance(why, WeightedSum):
        rows = [(one.concept, one.amount) for one in _by_size(why.contributions)]
        rows.append(("(intercept)", why.intercept))
        if why.residual is not None:
            rows.append(("(not explained by concepts)", why.residual))
        return [*_bars(rows), f"  together {why.logit:+.2f}: the logit of {why.label}"]
    if isinstance(why, Sensitivity):
        rows = [(one.concept, one.amount) for one in _by_size(why.contributions)]
        return [
            *_bars(rows),
            f"  gradient x input on the logit of {why.label}, {why.logit:+.2f}; "
            "concepts overlap, so these do not add up to it",
        ]
    return [
        "  this model has no concepts of its own; a network is read by those of another with "
        "--concepts"
    ]


def _by_size(contributions: tuple[Contribution, ...]) -> list[Contribution]:
    return sorted(contributions, key=lambda one: -abs(one.amount))


def _bars(rows: list[tuple[str, float]]) -> list[str]:
    wide = max(len(name) for name, _ in rows)
    longest = max(abs(amount) for _, amount in rows) or 1.0
    return [
        f"  {name.ljust(wide)}  {amount:+7.2f}  "
        f"{('+' if amount > 0 else '-') * round(BAR * abs(amount) / longest)}".rstrip()
        for name, amount in rows
    ]
