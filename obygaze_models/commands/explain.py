"""``obygaze models explain``: the reasons of a model's predictions, and tests of its concepts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from obygaze_features.common.cli import echo_json, folder_argument, json_option, store_argument
from obygaze_features.errors import UsageError
from obygaze_models.commands._shared import echo_warnings
from obygaze_models.data.warnings import RunWarning

BAR = 24
"""The longest bar, in characters that every terminal and file can show."""


@click.command()
@folder_argument("model")
@store_argument("store")
@click.argument("ids", metavar="[ID...]", nargs=-1)
@click.option(
    "--nearest",
    type=click.IntRange(min=0),
    default=5,
    show_default=True,
    help="How many similar clips of the store to list.",
)
@click.option(
    "--concepts",
    type=click.Path(path_type=Path),
    help="A saved bottleneck, whose concepts --tcav looks for in a network.",
)
@click.option("--tcav", "analysis", flag_value="tcav", help="How a network uses --concepts.")
@click.option(
    "--significance",
    "analysis",
    flag_value="significance",
    help="Whether a bottleneck's concepts beat shuffled labels.",
)
@click.option(
    "--intervene",
    "analysis",
    flag_value="intervene",
    help="A bottleneck's scores with its concepts corrected.",
)
@click.option(
    "--manifest",
    type=click.Path(path_type=Path),
    help="The annotations, for --tcav, --significance and --intervene.",
)
@click.option("--labels", metavar="NAME", help="The manifest's label set.  [default: its own]")
@click.option(
    "--draws",
    type=click.IntRange(min=1),
    help="Random directions, or orders of concepts.  [default: 200, or 20]",
)
@click.option("--seed", default=0, show_default=True, help="Fixes the random draws.")
@json_option
def explain(
    model: Path,
    store: Path | str,
    ids: tuple[str, ...],
    nearest: int,
    concepts: Path | None,
    analysis: str | None,
    manifest: Path | None,
    labels: str | None,
    draws: int | None,
    seed: int,
    as_json: bool,
) -> None:
    """Explain a saved MODEL's predictions of clips of a STORE, or its concepts.

    With IDs: a linear bottleneck shows each concept's part in the logit, and the parts add up; a
    tree says which concepts it finds in the clip. Other models, such as networks, give no reasons.

    Without IDs, on the annotated clips of --manifest that the model has not seen: --tcav counts
    how often a network's logit rises along each concept, --significance ranks clips by each
    concept, both against directions of shuffled labels; --intervene corrects the concepts of a
    bottleneck, more and more of them, and scores it again. Their JSON can be shown in a page:
    obygaze report RUN --analysis FILE.

    \b
    Examples:
      obygaze models explain runs/x/models/pcbm-tree/EN-vs-S-0 stores/xclip.zarr tt0108160-001
      obygaze models explain runs/x/models/mlp/EN-vs-S-0 stores/xclip.zarr tt0108160-001 \\
        --nearest 10 --json
      obygaze models explain runs/x/models/mlp/EN-vs-S-0 stores/xclip.zarr --tcav \\
        --concepts runs/x/models/pcbm-tree/EN-vs-S-0 --manifest manifests/obygaze12
      obygaze models explain runs/x/models/pcbm-tree/EN-vs-S-0 stores/xclip.zarr --intervene \\
        --manifest manifests/obygaze12 --json > interventions.json
    """
    import msgspec

    from obygaze_features.common.tables import align
    from obygaze_models.explain.analyses import analyse
    from obygaze_models.explain.analysis_tables import describe_analysis
    from obygaze_models.explain.clips import explain_clips
    from obygaze_models.saved.about import read_about

    result: Any
    if analysis is None:
        if not ids:
            raise UsageError("name clips (ID...), or add --tcav, --significance or --intervene")
        if concepts is not None:
            raise UsageError(
                "--concepts is for --tcav; of single clips a network gives no reasons, and a "
                "bottleneck has its own concepts"
            )
        result = explain_clips(model, store, ids, nearest=nearest)
    else:
        if ids:
            raise UsageError(f"--{analysis} uses all annotated clips; leave out the IDs")
        if manifest is None:
            raise UsageError(f"--{analysis} needs annotations; add --manifest FOLDER")
        result = analyse(
            analysis, model, store, manifest, concepts, labels=labels, draws=draws, seed=seed
        )
    if as_json:
        echo_json(msgspec.to_builtins(result))
    elif analysis is None:
        click.echo("\n\n".join(map(_describe_clip, result)))
    else:
        table = describe_analysis(result)
        click.echo(f"{align(table.header, table.rows)}\n\n{table.note}")
    echo_warnings(RunWarning(**fields) for fields in read_about(model).get("warnings", []))


def _describe_clip(clip: dict[str, Any]) -> str:
    from obygaze_features.common.tables import align

    explanation = clip["explanation"]
    label, probabilities = explanation["label"], explanation["probabilities"]
    others = [f"{name} {p:.2f}" for name, p in probabilities.items() if name != label]
    lines = [f"{clip['id']}: {label}, probability {probabilities[label]:.2f} ({', '.join(others)})"]
    lines += _reasons(explanation["why"], list(probabilities))
    if clip["nearest"]:
        rows = [[other["id"], f"{other['cosine']:.3f}"] for other in clip["nearest"]]
        table = align(["nearest clips", "cosine"], rows)
        lines += ["", *(f"  {line}" for line in table.splitlines())]
    return "\n".join(lines)


def _reasons(why: dict[str, Any] | None, classes: list[str]) -> list[str]:
    from obygaze_models.explain.parts import NOT_CONCEPTS, name_log_odds

    if why is None:
        return ["  this model gives no reasons"]
    if "steps" in why:
        shares = ", ".join(f"{share:.0%} {name}" for name, share in why["shares"].items())
        return [
            *("  " + part.sentence("the store's clips") for part in why["conditions"]),
            f"  the training clips that end there: {shares}",
        ]
    rows = [(part["concept"], part["amount"]) for part in why["contributions"]]
    rows.append(("(intercept)", why["intercept"]))
    if why["residual"] is not None:
        rows.append((f"({NOT_CONCEPTS})", why["residual"]))
    width = max(len(name) for name, _ in rows)
    longest = max(abs(amount) for _, amount in rows) or 1.0
    return [
        *(
            f"  {name.ljust(width)}  {amount:+7.2f}  "
            f"{('+' if amount > 0 else '-') * round(BAR * abs(amount) / longest)}".rstrip()
            for name, amount in rows
        ),
        f"  together {why['logit']:+.2f}: the {name_log_odds(classes)}",
    ]
