"""``obygaze bias eat``: association tests on embeddings."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from obygaze_features.common.cli import ADDRESS, echo_json, json_option, overwrite_option
from obygaze_features.errors import UsageError
from obygaze_models.commands.bias_outputs import check_outputs, outputs_option, write_outputs

if TYPE_CHECKING:
    from obygaze_models.bias.association import P
    from obygaze_models.bias.association_table import Table
    from obygaze_models.bias.battery import Battery, Selector

__all__ = ["eat"]


@click.command()
@click.argument("battery", required=False)
@click.option(
    "--store",
    type=ADDRESS,
    required=True,
    help="Embeddings of X and Y: a store, NAME.vec, NAME.csv, or a bottleneck (its concepts).",
)
@click.option("--texts", type=ADDRESS, help="Those of A and B, where they lie elsewhere.")
@click.option(
    "--manifest",
    "manifests",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Whose columns items are selected by, in place of the stores' own; several if need be.",
)
@click.option(
    "--sets",
    multiple=True,
    metavar="NAME=SET",
    help="In place of a battery, x=, y=, a= and b= of one test; see above.",
)
@click.option("--array", default="native", show_default=True, help="Which array of --store.")
@click.option("--pooling", help="Of an array with several vectors an item: max, mean or first.")
@click.option(
    "--ddof",
    type=click.IntRange(0, 1),
    default=1,
    show_default=True,
    help="Standard deviation of a sample (1) or of a population (0).",
)
@click.option(
    "--p",
    type=click.Choice(["auto", "exact", "sampled", "normal"]),
    default="auto",
    show_default=True,
    help="Over all partitions, or drawn ones; auto: all up to 200,000.",
)
@click.option(
    "--samples",
    type=click.IntRange(min=1),
    default=100_000,
    show_default=True,
    help="How many partitions are drawn.",
)
@click.option(
    "--seed",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Fixes what is drawn.",
)
@click.option("--published", metavar="MODEL", help="Whose published figures to show.")
@click.option("--skip-missing", is_flag=True, help="Do without items that have no embedding.")
@outputs_option
@overwrite_option
@json_option
def eat(
    battery: str | None,
    store: Path | str,
    texts: Path | str | None,
    manifests: tuple[Path, ...],
    sets: tuple[str, ...],
    array: str,
    pooling: str | None,
    ddof: int,
    p: P,
    samples: int,
    seed: int,
    published: str | None,
    skip_missing: bool,
    outputs: tuple[Path, ...],
    overwrite: bool,
    as_json: bool,
) -> None:
    """Test whether items are nearer to some words than others are: WEAT and its kin.

    A BATTERY is emotion, professions, or a JSON file of your own; each of its tests asks whether X
    are nearer to A than to B, more so than Y are. Of --sets, each is ids (x=doc,nurse), columns
    and their values (x=gender:woman,profession:science|medicine) or a file with an id a line
    (x=@women.txt); without y each item of x is tested alone.

    \b
    Examples:
      obygaze bias eat emotion --store stores/sobem.zarr --texts stores/prompts.zarr
      obygaze bias eat professions --store clip.zarr -o professions.csv -o professions.svg
      obygaze bias eat --store glove.vec --sets x=rose,lily --sets y=ant,wasp \\
        --sets a=love,peace --sets b=hatred,filth
      obygaze bias eat --store models/tree --texts prompts.zarr --sets x=Look,Body \\
        --sets a=stimulus:nude --sets b=stimulus:dressed
    """
    from obygaze_features.manifests import Manifest
    from obygaze_models.bias.association import Settings
    from obygaze_models.bias.association_table import association_figure, run_battery
    from obygaze_models.bias.battery import read_battery
    from obygaze_models.bias.vectors import manifest_columns, open_vectors

    if (battery is None) == (not sets):
        both = "; not both" if sets else ""
        raise UsageError(f"give the name of a battery, or --sets of one test{both}")
    check_outputs(outputs, overwrite=overwrite)
    table = run_battery(
        read_battery(battery) if battery is not None else _battery_of(sets),
        open_vectors(store, array, pooling),
        None if texts is None else open_vectors(texts),
        tables=[manifest_columns(Manifest.load(one)) for one in manifests],
        settings=Settings(ddof=1 if ddof else 0, p=p, samples=samples, seed=seed),
        model=published,
        skip_missing=skip_missing,
    )
    content = _as_json(table)
    if as_json:
        echo_json(content)
    else:
        _echo(table)
    for note in table.notes:
        click.secho(f"NOTE: {note}", fg="yellow", err=True)
    for name, why in table.left_out.items():
        click.secho(f"NOTE: {name} is left out: {why}", fg="yellow", err=True)
    write_outputs(
        outputs,
        [row.flat() for row in table.rows],
        content,
        lambda: association_figure(table),
        overwrite=overwrite,
        quiet=as_json,
    )
    if table.left_out:
        click.get_current_context().exit(3)


def _battery_of(sets: tuple[str, ...]) -> Battery:
    from obygaze_models.bias.battery import AssociationTest, Battery

    of: dict[str, Selector] = {}
    for one in sets:
        name, equals, said = one.partition("=")
        if name not in ("x", "y", "a", "b") or not equals or name in of:
            raise UsageError(f"--sets {one}: x=SET, y=SET, a=SET and b=SET are meant, each once")
        of[name] = _selector(said)
    if lacking := [name for name in "xab" if name not in of]:
        raise UsageError(f"--sets lack {lacking[0]}=SET")
    return Battery(
        "given sets", (AssociationTest("given sets", of["x"], of["a"], of["b"], of.get("y")),)
    )


def _selector(said: str) -> Selector:
    if said.startswith("@"):
        try:
            lines = Path(said[1:]).read_text(encoding="utf-8").splitlines()
        except OSError as problem:
            raise UsageError(f"{said[1:]} cannot be read: {problem.strerror}") from None
        except UnicodeDecodeError:
            raise UsageError(f"{said[1:]} is not UTF-8") from None
        return tuple(filter(None, map(str.strip, lines)))
    parts = tuple(filter(None, said.split(",")))
    if ":" not in said:
        return parts
    columns = [part.partition(":") for part in parts]
    if not all(colon for _, colon, _ in columns):
        raise UsageError(f"{said}: ids, or COLUMN:VALUE|VALUE with commas between; not both")
    return {name: tuple(values.split("|")) for name, _, values in columns}


def _as_json(table: Table) -> dict[str, Any]:
    return {**asdict(table), "rows": [row.flat() for row in table.rows]}


def _echo(table: Table) -> None:
    from obygaze_features.common.tables import align
    from obygaze_models.bias.association_table import SIGNIFICANT, printed_p

    referred = any(row.published for row in table.rows)
    header = [table.battery, "X", "Y", "A", "B", "d", "95%", "T", "p"]
    lines = []
    for row in table.rows:
        found = row.found
        line = [row.name, row.x, row.y or "-", row.a, row.b]
        line.append(_starred(found.d, found.p < SIGNIFICANT))
        line.append("-" if found.low is None else f"{found.low:+.2f} to {found.high:+.2f}")
        line += [
            f"{found.statistic:+.4f}",
            printed_p(found.p),
        ]
        said = row.published
        line += [_starred(said.d, said.significant) if said else "-"] if referred else []
        lines.append(line)
    click.echo(align([*header, *([str(table.model)] if referred else [])], lines))
    how = dict.fromkeys(_how(row.found.p_is, row.found.partitions) for row in table.rows)
    click.echo(f"* p < {SIGNIFICANT}, one-sided; p {' or '.join(how)}; 95% of d over draws")


def _starred(d: float, significant: bool) -> str:
    return f"{d:+.2f}{'*' if significant else ' '}"


def _how(p_is: str, partitions: int | None) -> str:
    if partitions is None:
        return "from a normal distribution"
    return f"over {'all' if p_is == 'exact' else 'drawn'} partitions ({partitions:,})"
