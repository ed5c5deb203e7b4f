"""The commands of `obygaze stores`: inspect, verify, finalise, join and compare stores."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from obygaze_features.commands.stores_search import search
from obygaze_features.commands.stores_transfer import (
    export,
    import_,
    pack,
    pull,
    push,
    unpack,
)
from obygaze_features.common.cli import (
    ADDRESS,
    echo,
    echo_json,
    emit,
    exit_if,
    film_option,
    folder_argument,
    json_option,
    names_option,
    output_options,
    store_argument,
)
from obygaze_features.common.printer import align, describe
from obygaze_features.common.text import counted, for_shell, join_some, redact_url
from obygaze_features.errors import StoreError

if TYPE_CHECKING:
    from obygaze_features.store import Store
    from obygaze_features.store.diff import Difference
    from obygaze_features.store.repair import Repair
    from obygaze_features.store.verify import Damage

NOT_STATED = "not stated"
MAX_VALUE_WIDTH = 40
"""The maximum number of characters of an attribute that `diff` prints."""


@click.group()
def stores() -> None:
    """Inspect, verify, finalise, share and search feature stores.

    \b
    Examples:
      obygaze stores info stores/xclip.zarr
      obygaze stores verify stores/xclip.zarr
      obygaze stores finalise stores/xclip.zarr
      obygaze stores search stores/xclip.zarr --like tt0108160-001
    """


@stores.command()
@store_argument("store")
@json_option
def info(store: Path | str, as_json: bool) -> None:
    """Show a store's rows, arrays, backbone and digests.

    For a folder of stores, shows how many rows of each store are done, failed and to do.

    \b
    Examples:
      obygaze stores info stores/xclip.zarr
      obygaze stores info stores
      obygaze stores info stores/xclip.zarr --json
      obygaze stores info https://lab.example/xclip.zarr
    """
    from obygaze_features.store import open_store

    paths = [] if "://" in str(store) else sorted(Path(store).glob("*.zarr"))
    if paths:
        rows = [_count_rows(open_store(path)) for path in paths]
        table = align(list(rows[0]), [list(row.values()) for row in rows], left=2)
        emit(rows, as_json, lambda _: table)
    else:
        emit(open_store(store).info(), as_json, lambda facts: _describe_info(store, facts))


def _count_rows(store: Store) -> dict[str, Any]:
    facts = store.info()
    rows = facts["rows"]
    return {
        "store": store.where,
        "state": facts["state"],
        "rows": rows["all"],
        "done": rows["done"],
        "failed": rows["failed"],
        "to_do": rows["to_do"],
    }


@stores.command()
@folder_argument("store")
@click.option("--compress", is_flag=True, help="Make chunks a little smaller, but slower to read.")
@click.option(
    "--allow-incomplete", is_flag=True, help="Finalise the store even if rows are still to do."
)
@json_option
def finalise(store: Path, compress: bool, allow_incomplete: bool, as_json: bool) -> None:
    """Make a complete store read-only, with fewer files and a card.

    Verifies the checksums of the small files that extraction wrote, and joins the files into large
    ones. README.md describes the data; checksums.json lists the files' checksums. A store that is
    already final is not changed.

    \b
    Examples:
      obygaze stores finalise stores/xclip.zarr
      obygaze stores finalise stores/xclip.zarr --compress
    """
    from obygaze_features.store import open_store

    opened = open_store(store)
    already = opened.is_final
    opened.finalise(compress=compress, allow_incomplete=allow_incomplete)
    files = [path for path in [store, *store.rglob("*")] if path.is_file()]
    facts = {
        "path": str(store),
        "rows": len(opened),
        "done": opened.info()["rows"]["done"],
        "files": len(files),
        "size": sum(path.stat().st_size for path in files),
        "already": already,
    }
    emit(facts, as_json, lambda facts: describe({**facts, "size": f"{facts['size']:,} B"}))


@stores.command("set")
@folder_argument("store")
@click.option("--licence", help="The licence of the features, such as CC-BY-4.0.")
@click.option("--citation", help="The publication to cite.")
@click.option("--name", help="The store's name.")
def set_(store: Path, **texts: str | None) -> None:
    """Edit a store's licence, citation or name.

    The features stay unchanged. A final store gets a new card and new checksums in one step. Copies
    that you pushed earlier stay as they are; push the store to a new address to share the change.

    \b
    Examples:
      obygaze stores set stores/xclip.zarr --licence CC-BY-4.0
      obygaze stores set stores/xclip.zarr --citation "Doe (2026). Features of doors."
    """
    from obygaze_features.store import open_store

    facts = open_store(store).set(**texts).attributes
    echo(describe({key: facts[key] or NOT_STATED for key in texts if key in facts}))


@stores.command()
@store_argument("store")
@json_option
def verify(store: Path | str, as_json: bool) -> None:
    """Verify every file of a store, and list damage by file and id.

    Compares every chunk, shard, record and other file with its checksum. Changes nothing. Exits
    with code 1 if anything is damaged.

    \b
    Examples:
      obygaze stores verify stores/xclip.zarr
      obygaze stores verify stores/xclip.zarr --json
    """
    from obygaze_features.store.verify import verify as verify_store

    entries = verify_store(store)
    damage = [entry for entry in entries if not entry.harmless]
    if as_json:
        echo_json([asdict(entry) for entry in entries])
    else:
        _print_damage(damage)
        harmless: dict[str, list[str]] = {}
        for entry in entries:
            if entry.harmless:
                harmless.setdefault(entry.why, []).append(entry.file)
        for reason, files in harmless.items():
            echo(f"harmless: {join_some(files)}: {reason}")
        if damage:
            rows = len({item_id for entry in damage for item_id in entry.ids})
            echo(f"{counted(len(damage), 'damaged file')}, {counted(rows, 'damaged row')}")
            remedy = "pull the store again, or restore the damaged files from a copy"
            if rows and isinstance(store, Path) and store.is_dir():
                remedy = f"obygaze stores repair {for_shell(store)}"
            echo(f"next: {remedy}")
        else:
            echo(f"{redact_url(store)} is undamaged")
    exit_if(damage, 1)


@stores.command()
@folder_argument("store")
@click.option("--yes", is_flag=True, help="Drop rows without asking.")
@json_option
def repair(store: Path, yes: bool, as_json: bool) -> None:
    """Drop damaged blocks, so that extraction fills them again.

    Shows the rows that it would drop, and asks for confirmation; without a terminal it stops there,
    unless you pass --yes. The replaced and dropped files of a damaged store are kept next to it, in
    NAME.zarr.before-repair. Exits with code 3 if rows were dropped.

    A damaged final store is reopened and keeps every intact block; fill it and finalise it again.
    No process may write to the store during a repair. Damaged metadata and tables (zarr.json,
    items.csv ...) are not repaired: restore them from a copy. Files left by killed writers are
    harmless, and finalise leaves them out.

    \b
    Examples:
      obygaze stores repair stores/xclip.zarr
      obygaze stores repair stores/xclip.zarr --yes
    """
    from obygaze_features.store.repair import repair as repair_store

    def confirm(damage: Sequence[Damage], ids: Sequence[str]) -> None:
        if yes:
            return
        _print_damage(damage, err=True)
        rows = f"{counted(len(ids), 'row')} must be dropped and computed again: {join_some(ids)}"
        if not sys.stdin.isatty():
            again = f"obygaze stores repair {for_shell(store)} --yes"
            raise StoreError(f"{store}: {rows}. None was dropped. To drop them, run: {again}")
        echo(rows, err=True)
        if not click.confirm("Drop them?", err=True):
            raise StoreError(f"{store}: no row was dropped")

    result = repair_store(store, confirm=confirm)
    if as_json:
        paths = {"path": str(result.path), "aside": result.aside and str(result.aside)}
        echo_json({**asdict(result), **paths})
    else:
        _print_repair(result)
    exit_if(result.to_do)


@stores.command()
@store_argument("store")
@film_option("Keep the items of these films.")
@names_option("--ids", multiple=True, metavar="ID,...", help="Keep these items.")
@output_options("The new store, NAME.zarr.")
@json_option
def subset(
    store: Path | str, films: Sequence[str], output: Path, as_json: bool, **options: Any
) -> None:
    """Make a new store from some films or items of a store.

    Separate names with commas; @FILE reads names from a file, one per line. The new store is open;
    finalise it before you share it.

    \b
    Examples:
      obygaze stores subset stores/xclip.zarr --film tt0108160,tt0120338 -o stores/two.zarr
      obygaze stores subset stores/xclip.zarr --ids @labelled.txt -o stores/labelled.zarr
      obygaze stores subset https://lab.example/xclip.zarr --film tt0108160 -o stores/one.zarr
    """
    from obygaze_features.store import open_store

    _report_new_store(open_store(store).subset(output, films=films or None, **options), as_json)


@stores.command()
@click.argument("stores_", nargs=-1, required=True, metavar="STORE...", type=ADDRESS)
@output_options("The new store, NAME.zarr.")
@json_option
def merge(stores_: tuple[Path | str, ...], output: Path, overwrite: bool, as_json: bool) -> None:
    """Join partial stores of one manifest, or of different films.

    Stores of the same items are treated as parts: each row comes from the first store that has it.
    Stores with no ids in common become one store of all their items. Stores with different weights,
    preprocessing, precision or arrays are refused.

    \b
    Examples:
      obygaze stores merge part1/xclip.zarr part2/xclip.zarr -o stores/xclip.zarr
      obygaze stores merge ours/xclip.zarr theirs/xclip.zarr -o stores/both.zarr
    """
    from obygaze_features.store import merge as merge_stores

    _report_new_store(merge_stores(stores_, output, overwrite=overwrite), as_json)


@stores.command()
@store_argument("left")
@store_argument("right")
@json_option
def diff(left: Path | str, right: Path | str, as_json: bool) -> None:
    """Compare two stores: attributes, reference clips and rows.

    Rows are compared by cosine similarity; 1 means the same direction. Extracted stores include the
    features of a synthetic reference clip, the probe: if the cosine of two labs' probes is close to
    1, the labs compute the same features. Exits with code 1 if the stores differ.

    \b
    Examples:
      obygaze stores diff ours/xclip.zarr theirs/xclip.zarr
      obygaze stores diff ours/xclip.zarr theirs/xclip.zarr --json
    """
    from obygaze_features.store import open_store

    difference = open_store(left).diff(right)
    names = redact_url(left), redact_url(right)
    emit(difference.to_json(), as_json, lambda _: "\n".join(_describe(difference, *names)))
    exit_if(not difference.identical, 1)


def _describe_info(path: object, facts: dict[str, Any]) -> str:
    from obygaze_features.store.format import CREDITS

    rows, backbone, preprocessing = facts["rows"], facts["backbone"], facts["preprocessing"]
    package = f" of {backbone['package']}" if backbone.get("package") else ""
    default = "none, for images and texts" if "texts" in preprocessing else NOT_STATED
    sampling, mode = preprocessing.get("sampling", default), preprocessing.get("mode")
    kind = "sound" if sampling.startswith("sound ") else "frames"
    about = {
        "state": facts["state"],
        "rows": f"{rows['all']:,}: {rows['done']:,} done, {rows['failed']:,} failed, "
        f"{rows['to_do']:,} to do",
        "SYNTHETIC": backbone.get("config", {}).get("synthetic"),
        "backbone": f"{backbone['name']}{package}, weights sha256 {backbone['weights_sha256']}",
        kind: f"{sampling.removeprefix('sound ')}; preprocessing {mode}",
        "items": f"digest {facts['items_digest']}",
        "precision": facts["precision"],
        **{key: facts[key] or NOT_STATED for key in ("licence", "citation")},
        **{f"weights {key}": backbone.get(key) for key in CREDITS},
    }
    lines = [f"{redact_url(path)}: {facts['name']}, features of {facts['manifest']}"]
    lines += [describe(about), "arrays"]
    for name, array in facts["arrays"].items():
        shape = " x ".join(map(str, array["shape"]))
        size = f"{array['bytes']:,} B"
        lines.append(f"  {name:<16}{shape:>14}  {array['dtype']:<8}{size:>15}  {array['meaning']}")
        if names := array.get("columns"):
            lines.append(f"    of {join_some(names)}")
    if facts["failures"]:
        lines.append("failed")
        lines += [f"  {item_id}: {reason}" for item_id, reason in facts["failures"].items()]
    return "\n".join([*lines, f"next: {_next_step(path, facts)}"])


def _next_step(path: object, facts: dict[str, Any]) -> str:
    if facts["state"] == "final":
        return f"obygaze stores verify {for_shell(path)} (reads every file)"
    if "://" in str(path):
        return "ask the store's owner to finalise it, or copy finished rows: obygaze stores subset"
    if facts["rows"]["to_do"]:
        return "run the extraction again to resume it, or join parts: obygaze stores merge"
    return f"obygaze stores finalise {for_shell(path)} (makes it read-only, with a card)"


def _print_damage(damage: Sequence[Damage], *, err: bool = False) -> None:
    for entry in damage:
        rows = f"; rows: {join_some(entry.ids)}" if entry.ids else ""
        echo(f"{entry.file}: {entry.why}{rows}", err=err)


def _print_repair(result: Repair) -> None:
    _print_damage(result.damage)
    if result.reopened:
        echo(f"{result.path} is open again")
    if result.aside:
        echo(f"the previous files: {result.aside} (remove them when the store is complete again)")
    if result.to_do:
        echo(
            f"{counted(len(result.to_do), 'row')} to compute again: {join_some(result.to_do)}\n"
            "next: run the extraction, or the import, again"
        )
    if not result.damage and not result.reopened:
        echo(f"{result.path} is undamaged; nothing was changed")


def _report_new_store(store: Store, as_json: bool) -> None:
    rows = store.info()["rows"]
    counts = {key: rows[key] for key in ("done", "failed", "to_do")}
    emit({"path": str(store.path), **counts}, as_json, describe)
    if not (rows["to_do"] or as_json):
        echo(f"next: obygaze stores finalise {for_shell(store.path)}")


def _describe(difference: Difference, left: str, right: str) -> Iterator[str]:
    if difference.identical:
        yield f"{left} and {right} are identical"
        return
    if difference.attributes:
        yield align(["made with", left, right], _differing(difference.attributes), left=3)
    if difference.probe or difference.rows:
        header = ["array", "probe cosine", "common rows", "equal", "mean cosine", "least"]
        table = []
        for name, pair in difference.rows.items():
            probe, mean, least = map(
                _format_cosine, (difference.probe.get(name), pair.mean, pair.least)
            )
            table.append([name, probe, f"{pair.n:,}", f"{pair.equal:,}", mean, least])
        yield align(header, table)
    for name, pair in difference.rows.items():
        if pair.worst:
            worst = ", ".join(f"{item_id} ({cosine:.6f})" for item_id, cosine in pair.worst)
            yield f"{name}, lowest cosines: {worst}"
    for path, ids in ((left, difference.only_left), (right, difference.only_right)):
        if ids:
            yield f"done only in {path}: {counted(len(ids), 'row')}, {join_some(ids)}"


def _format_cosine(value: float | None) -> str:
    return "-" if value is None else f"{value:.6f}"


def _differing(attributes: Mapping[str, Sequence[Any]]) -> Iterator[list[str]]:
    """Yield a table row for each attribute, or key of an attribute, that differs."""
    for name, (left, right) in attributes.items():
        if isinstance(left, Mapping) and isinstance(right, Mapping):
            for key in {**left, **right}:
                if left.get(key) != right.get(key):
                    yield [f"{name}.{key}", *map(_format_value, (left.get(key), right.get(key)))]
        else:
            yield [name, _format_value(left), _format_value(right)]


def _format_value(value: object) -> str:
    text = "-" if value is None else value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= MAX_VALUE_WIDTH else f"{text[: MAX_VALUE_WIDTH - 3]}..."


for command in (search, pack, unpack, export, import_, push, pull):
    stores.add_command(command)
