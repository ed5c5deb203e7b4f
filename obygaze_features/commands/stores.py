"""`obygaze stores`: look into feature stores, check, finalise, join and compare them."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from obygaze_features.commands.exchange import export, import_, pack, unpack
from obygaze_features.commands.transfer import pull, push
from obygaze_features.common.commands import (
    ADDRESS,
    echo_json,
    folder_argument,
    json_option,
    overwrite_option,
    store_argument,
)
from obygaze_features.common.tables import align
from obygaze_features.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from obygaze_features.store.assemble import Assembled
    from obygaze_features.store.compare import Difference
    from obygaze_features.store.integrity import Damage
    from obygaze_features.store.repair import Repair

__all__ = ["stores"]

SHOWN = 5
"""Ids that are named in a line; --json names all."""

output_option = click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    help="The new store, NAME.zarr.",
)


@click.group()
def stores() -> None:
    """Look into feature stores, check, finalise, join and compare them.

    \b
    Examples:
      obygaze stores info stores/xclip.zarr
      obygaze stores verify stores/xclip.zarr
      obygaze stores finalise stores/xclip.zarr
    """


@stores.command()
@store_argument("store")
@json_option
def info(store: Path | str, as_json: bool) -> None:
    """Say what a store holds: rows, arrays, backbone and fingerprints.

    \b
    Examples:
      obygaze stores info stores/xclip.zarr
      obygaze stores info stores/xclip.zarr --json
      obygaze stores info https://lab.example/xclip.zarr
    """
    from obygaze_features.store import describe, open_store

    facts = describe(open_store(store))
    if as_json:
        echo_json(facts)
    else:
        _print(store, facts)


@stores.command()
@store_argument("store")
@json_option
def verify(store: Path | str, as_json: bool) -> None:
    """Read a whole store again and name what is damaged, by file and id.

    Every chunk, shard, record and other file is held to the checksum that was kept of it. Nothing
    is changed. Ends with exit code 1 if anything is damaged.

    \b
    Examples:
      obygaze stores verify stores/xclip.zarr
      obygaze stores verify stores/xclip.zarr --json
    """
    from obygaze_features.store import verify as check

    found = check(store)
    damage = [one for one in found if not one.harmless]
    if as_json:
        echo_json([asdict(one) for one in found])
    else:
        _print_damage(damage)
        if len(found) > len(damage):
            files = _count(len(found) - len(damage), "file")
            click.echo(f"{files} of no block, harmless: of a writer that was killed, or is at work")
        if damage:
            rows = len({one for each in damage for one in each.ids})
            click.echo(f"{_count(len(damage), 'place')} damaged, {_count(rows, 'row')} hit")
            click.echo(f"next: obygaze stores repair {store}")
        else:
            click.echo(f"{store} is sound")
    if damage:
        click.get_current_context().exit(1)


@stores.command()
@folder_argument("store")
@click.option("--reopen", is_flag=True, help="Open a final store again though it is sound.")
@json_option
def repair(store: Path, reopen: bool, as_json: bool) -> None:
    """Turn damaged blocks into missing ones, which extraction fills.

    Also clears the files that killed writers left. A final store that is damaged is opened again:
    it keeps every intact block, and is to be filled and finalised once more. Nobody may be
    writing the store meanwhile.

    \b
    Examples:
      obygaze stores repair stores/xclip.zarr
      obygaze stores repair stores/xclip.zarr --reopen
    """
    from obygaze_features.store import repair as mend

    done = mend(store, reopen=reopen)
    if as_json:
        echo_json({**asdict(done), "path": str(done.path)})
    else:
        _print_repair(done)


@stores.command()
@folder_argument("store")
@click.option("--compress", is_flag=True, help="Compress each chunk; smaller, slower to read.")
@click.option(
    "--allow-incomplete", is_flag=True, help="Go on although blocks are missing, without them."
)
@json_option
def finalise(store: Path, compress: bool, allow_incomplete: bool, as_json: bool) -> None:
    """Make a filled store one of few files, with a dataset card, read-only.

    The small files of the extraction are joined into large ones, each held to its checksum on the
    way. README.md and croissant.json describe the data, checksums.json lists every file.

    \b
    Examples:
      obygaze stores finalise stores/xclip.zarr
      obygaze stores finalise stores/xclip.zarr --compress
    """
    from obygaze_features.store import finalise as make_final

    made = make_final(store, compress=compress, allow_incomplete=allow_incomplete)
    if as_json:
        echo_json({**asdict(made), "path": str(made.path)})
        return
    click.echo(
        f"{made.path} is final: {made.done:,} of {_count(made.rows, 'row')} done, "
        f"{_count(made.files, 'file')}, {made.size:,} B"
    )
    click.echo(f"card -> {made.path / 'README.md'}")


@stores.command()
@store_argument("store")
@click.option("--films", multiple=True, metavar="FILM,...", help="Keep the items of these films.")
@click.option("--ids", multiple=True, metavar="ID,...", help="Keep these items.")
@output_option
@overwrite_option
@json_option
def subset(
    store: Path | str,
    films: tuple[str, ...],
    ids: tuple[str, ...],
    output: Path,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Make a store of some films or items of another.

    Names are separated by commas; @FILE stands for the names in a file, one a line. The new store
    is open: finalise it to hand it on.

    \b
    Examples:
      obygaze stores subset stores/xclip.zarr --films tt0108160,tt0120338 -o stores/two.zarr
      obygaze stores subset stores/xclip.zarr --ids @labelled.txt -o stores/labelled.zarr
      obygaze stores subset https://lab.example/xclip.zarr --films tt0108160 -o stores/one.zarr
    """
    from obygaze_features.store import open_store
    from obygaze_features.store import subset as take

    made = take(
        open_store(store),
        output,
        ids=_names(ids) if ids else None,
        films=_names(films) if films else None,
        overwrite=overwrite,
    )
    _report(made, as_json)


@stores.command()
@click.argument("stores_", nargs=-1, required=True, metavar="STORE...", type=ADDRESS)
@output_option
@overwrite_option
@json_option
def merge(stores_: tuple[Path | str, ...], output: Path, overwrite: bool, as_json: bool) -> None:
    """Join part stores of one manifest, or stores of different films.

    Stores of the same items are taken as parts: each row comes from the first store that has it.
    Stores that have no id in common become one of all their items. Other weights, preprocessing,
    precision or arrays are refused.

    \b
    Examples:
      obygaze stores merge part1/xclip.zarr part2/xclip.zarr -o stores/xclip.zarr
      obygaze stores merge ours/xclip.zarr theirs/xclip.zarr -o stores/both.zarr
    """
    from obygaze_features.store import merge as join
    from obygaze_features.store import open_store

    made = join([open_store(one) for one in stores_], output, overwrite=overwrite)
    _report(made, as_json)


@stores.command()
@store_argument("left")
@store_argument("right")
@json_option
def diff(left: Path | str, right: Path | str, as_json: bool) -> None:
    """Compare two stores: attributes, probes, and the rows of common ids.

    Rows are compared by cosine: 1 means the same direction. Two labs whose probes have a cosine
    close to 1 speak of the same features. Ends with exit code 1 if there is any difference.

    \b
    Examples:
      obygaze stores diff ours/xclip.zarr theirs/xclip.zarr
      obygaze stores diff ours/xclip.zarr theirs/xclip.zarr --json
    """
    from obygaze_features.store import diff as compare
    from obygaze_features.store import open_store

    found = compare(open_store(left), open_store(right))
    if as_json:
        echo_json(found.to_json())
    else:
        _print_difference(found, left, right)
    if not found.identical:
        click.get_current_context().exit(1)


def _print(path: object, facts: dict[str, Any]) -> None:
    rows, backbone = facts["rows"], facts["backbone"]
    click.echo(f"{path}: {facts['name']}, features of {facts['manifest']}")
    click.echo(f"state      {facts['state']}")
    click.echo(
        f"rows       {rows['all']}: {rows['done']} done, {rows['failed']} failed, "
        f"{rows['to_do']} to do"
    )
    click.echo(f"backbone   {backbone['name']}, weights sha256 {backbone['weights_sha256']}")
    if synthetic := backbone.get("config", {}).get("synthetic"):
        click.echo(f"SYNTHETIC  {synthetic}")
    made = facts["preprocessing"]
    click.echo(f"frames     {made.get('sampling', 'not stated')}; preprocessing {made.get('mode')}")
    click.echo(f"items      digest {facts['items_digest']}")
    click.echo(f"precision  {facts['precision']}")
    click.echo(f"licence    {facts['licence'] or 'not stated'}")
    click.echo("arrays")
    for name, one in facts["arrays"].items():
        shape = " x ".join(map(str, one["shape"]))
        size = f"{one['bytes']:,} B"
        click.echo(f"  {name:<16}{shape:>14}  {one['dtype']:<8}{size:>15}  {one['meaning']}")
    if facts["failures"]:
        click.echo("failed")
        for identifier, reason in facts["failures"].items():
            click.echo(f"  {identifier}: {reason}")
    click.echo(f"next: {_next_step(path, facts)}")


def _next_step(path: object, facts: dict[str, Any]) -> str:
    if facts["state"] == "final":
        return f"obygaze stores verify {path} (reads everything again)"
    if facts["rows"]["to_do"]:
        return "run the extraction again, it goes on where it was; or join parts: stores merge"
    return f"obygaze stores finalise {path} (few files, a card, read-only)"


def _print_damage(damage: Sequence[Damage]) -> None:
    for one in damage:
        hit = f"; hit: {_some(one.ids)}" if one.ids else ""
        click.echo(f"{one.file}: {one.why}{hit}")


def _print_repair(done: Repair) -> None:
    _print_damage(done.damage)
    for name in done.restored:
        click.echo(f"restored {name}")
    if done.cleared:
        click.echo(f"cleared {_count(len(done.cleared), 'file')} that a writer had left")
    if done.left:
        click.echo(
            f"left {_count(len(done.left), 'file')} that may be of a writer at work; run this "
            "again in a few minutes"
        )
    if done.reopened:
        click.echo(f"{done.path} is open again")
    if done.to_do:
        click.echo(
            f"{_count(len(done.to_do), 'row')} to be done again: {_some(done.to_do)}\n"
            "next: run the extraction again"
        )
    if not (done.damage or done.restored or done.cleared or done.left or done.reopened):
        click.echo(f"{done.path} is sound; nothing was changed")


def _print_difference(found: Difference, left: object, right: object) -> None:
    if found.identical:
        click.echo(f"{left} and {right} are identical")
        return
    for name, values in found.attributes.items():
        click.echo(f"{name}")
        for path, value in zip((left, right), values, strict=True):
            click.echo(f"  {path}: {_brief(value)}")
    if found.probe or found.rows:
        click.echo(_agreements(found))
    for name, rows in found.rows.items():
        if rows.worst:
            worst = ", ".join(f"{one} ({cosine:.6f})" for one, cosine in rows.worst)
            click.echo(f"{name}, least alike: {worst}")
    for path, only in ((left, found.only_left), (right, found.only_right)):
        if only:
            click.echo(f"done only in {path}: {_count(len(only), 'row')}, {_some(only)}")


def _agreements(found: Difference) -> str:
    header = ["array", "probe cosine", "common rows", "equal", "mean cosine", "least"]
    table = [
        [
            name,
            _cosine(found.probe.get(name)),
            f"{rows.n:,}",
            f"{rows.equal:,}",
            _cosine(rows.mean),
            _cosine(rows.least),
        ]
        for name, rows in found.rows.items()
    ]
    return align(header, table)


def _report(made: Assembled, as_json: bool) -> None:
    if as_json:
        echo_json({**asdict(made), "path": str(made.path)})
        return
    rows = made.done + made.failed + made.to_do
    click.echo(
        f"{_count(rows, 'row')}: {made.done:,} done, {made.failed:,} failed, "
        f"{made.to_do:,} to do -> {made.path}"
    )
    if not made.to_do:
        click.echo(f"next: obygaze stores finalise {made.path}")


def _names(values: Sequence[str]) -> list[str]:
    """Names separated by commas, or one a line in a file that @ stands before."""
    names: list[str] = []
    for value in values:
        if value.startswith("@"):
            try:
                text = Path(value[1:]).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as problem:
                raise UsageError(f"{value[1:]} cannot be read: {problem}") from None
            names += text.split()
        else:
            names += [name.strip() for name in value.split(",") if name.strip()]
    return names


def _some(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - SHOWN:,} more" if len(ids) > SHOWN else ""
    return ", ".join(ids[:SHOWN]) + more


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _cosine(value: float | None) -> str:
    return "-" if value is None else f"{value:.6f}"


def _brief(value: object) -> str:
    text = str(value)
    return text if len(text) <= 160 else f"{text[:157]}..."


for command in (pack, unpack, export, import_, push, pull):
    stores.add_command(command)
