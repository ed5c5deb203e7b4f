"""The commands of `obygaze stores`: make, inspect, repair, share and search feature stores."""

from __future__ import annotations

import warnings
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

import obygaze_features as of
from obygaze_features.common.cli import (
    ADDRESS,
    PATH,
    echo,
    exit_if,
    film_option,
    folder_argument,
    json_option,
    names_option,
    output_options,
    show,
)
from obygaze_features.common.formatting import counted, join_some
from obygaze_features.errors import OutputExists, StoreError
from obygaze_features.store.format import PARQUET


@click.group()
def stores() -> None:
    """Inspect, verify, finalise, share and search feature stores.

    \b
    Example:
      obygaze stores info stores/xclip.zarr
    """


@stores.command()
@click.argument("store", type=ADDRESS)
@json_option
def info(store: Path | str, as_json: bool) -> None:
    """Show what a store holds, or the progress of each store in a folder.

    To read the numbers, use Python: obygaze_features.open_store(STORE).read("native", ["ID"]).

    \b
    Example:
      obygaze stores info stores/xclip.zarr
    """
    paths = []
    if isinstance(store, Path):
        paths = sorted(store.glob("*.zarr"))
    if not paths:
        show(of.open_store(store).info(), as_json)
        return

    rows = []
    for path in paths:
        facts = of.open_store(path).info()
        rows.append({"store": str(path), "state": facts["state"], **facts["rows"]})
    show(rows, as_json)


@stores.command()
@folder_argument("store")
@click.option(
    "--allow-incomplete",
    is_flag=True,
    help="Finalise even if rows are still to do; first stop any process that computes them.",
)
@json_option
def finalise(store: Path, as_json: bool, **options: bool) -> None:
    """Make a complete store read-only, with checksums and a card.

    \b
    Example:
      obygaze stores finalise stores/xclip.zarr
    """
    show(_measure(of.finalise(store, **options)), as_json)
    if not (store / PARQUET).exists():
        echo(
            f"{store} has no {PARQUET} for load_dataset. To add it: pip install 'obygaze[remote]', "
            f"obygaze stores repair {store} --reopen, obygaze stores finalise {store}",
            err=True,
        )


@stores.command("set")
@folder_argument("store")
@click.option("--licence", help="The licence of the features, such as CC-BY-4.0.")
@click.option("--citation", help="The publication to cite.")
@click.option("--name", help="The store's name.")
def set_(store: Path, **texts: str | None) -> None:
    """Edit a store's licence, citation or name.

    A final store also gets a new card.

    \b
    Example:
      obygaze stores set stores/xclip.zarr --licence CC-BY-4.0
    """
    given = {name: text for name, text in texts.items() if text is not None}
    facts = of.set_texts(store, given).attributes
    show({key: facts[key] for key in texts})


@stores.command()
@click.argument("store", type=ADDRESS)
@json_option
def verify(store: Path | str, as_json: bool) -> None:
    """Verify a store's files, and list damage by file and id.

    Compares each file of a final store, except the log, with its checksum. Exits with code 1 if
    anything is damaged.

    \b
    Example:
      obygaze stores verify stores/xclip.zarr
    """
    damage = of.verify(store)
    show({"undamaged": not damage, "damage": [asdict(entry) for entry in damage]}, as_json)
    exit_if(damage, 1)


@stores.command()
@folder_argument("store")
@click.option("--yes", is_flag=True, help="Drop rows without asking.")
@click.option(
    "--reopen",
    is_flag=True,
    help="Also reopen an undamaged final store, so that extraction can add and retry rows.",
)
@json_option
def repair(store: Path, yes: bool, reopen: bool, as_json: bool) -> None:
    """Drop damaged rows, so that extraction fills them again.

    No other process may write to the store. A damaged final store is reopened. Exits with code 3 if
    rows were dropped.

    \b
    Example:
      obygaze stores repair stores/xclip.zarr
    """
    damage = of.verify(store)
    ids = list(dict.fromkeys(id_ for entry in damage for id_ in entry.ids))
    rows = f"{counted(len(ids), 'row')} must be dropped and computed again: {join_some(ids)}"
    if ids and not yes and not click.confirm(f"{rows}. Drop them?", err=True):
        raise StoreError(f"{store}: no rows were dropped; to drop them, add --yes")

    of.repair(store, damage, reopen=reopen)
    dropped = [asdict(entry) for entry in damage]
    show({"path": store, "to_do": ids, "damage": dropped}, as_json)
    exit_if(ids)


@stores.command()
@click.argument("store", type=ADDRESS)
@film_option("Keep the items of these films.")
@names_option("--ids", metavar="ID,...", help="Keep these items.")
@output_options("The new store, NAME.zarr.")
@json_option
def subset(
    store: Path | str,
    output: Path,
    as_json: bool,
    **options: Any,
) -> None:
    """Make a new store from some films or items of a store.

    The new store is open; to share it, run obygaze stores finalise.

    \b
    Example:
      obygaze stores subset stores/xclip.zarr --film tt0108160,tt0120338 -o stores/two.zarr
    """
    show(_measure(of.subset(store, output, **options)), as_json)


@stores.command()
@click.argument("stores_", nargs=-1, required=True, metavar="STORE...", type=ADDRESS)
@output_options("The new store, NAME.zarr.")
@json_option
def merge(stores_: tuple[Path | str, ...], output: Path, overwrite: bool, as_json: bool) -> None:
    """Join partial stores of one manifest, or stores without a clip in common.

    In partial stores, each row comes from the first store in which it is done.

    \b
    Example:
      obygaze stores merge part1/xclip.zarr part2/xclip.zarr -o stores/xclip.zarr
    """
    show(_measure(of.merge(stores_, output, overwrite=overwrite)), as_json)


@stores.command()
@click.argument("left", type=ADDRESS)
@click.argument("right", type=ADDRESS)
@json_option
def diff(left: Path | str, right: Path | str, as_json: bool) -> None:
    """Compare two stores: attributes, probes and rows.

    Rows, and the probes (the features of a fixed input), are compared by value and by cosine.
    Exits with code 1 if the stores differ.

    \b
    Example:
      obygaze stores diff ours/xclip.zarr theirs/xclip.zarr
    """
    difference = of.diff(left, right)
    show(difference, as_json)
    exit_if(not difference["identical"], 1)


@stores.command()
@folder_argument("store")
@click.argument("target", type=ADDRESS)
@json_option
def push(store: Path, target: Path | str, as_json: bool) -> None:
    """Send a finalised STORE to a zip file or the Hub.

    TARGET is NAME.zip or hf://datasets/OWNER/NAME. Every checksum is verified first.

    \b
    Example:
      obygaze stores push stores/xclip.zarr xclip.zip
    """
    send = of.push
    if isinstance(target, Path) and target.suffix.lower() == ".zip":
        send = of.pack
    try:
        show(send(store, target), as_json)
    except OutputExists:  # push has no --overwrite, which would be for zip files only
        raise OutputExists(f"{target} already exists; choose another name") from None


@stores.command()
@click.argument("store", type=ADDRESS)
@output_options("The new store, NAME.zarr.")
@json_option
def pull(store: Path | str, output: Path, overwrite: bool, as_json: bool) -> None:
    """Copy a final STORE from a URL, a zip file or a folder.

    Every checksum is verified. The same command resumes an interrupted download.

    \b
    Example:
      obygaze stores pull xclip.zip -o stores/xclip.zarr
    """
    show(_measure(of.pull(store, output, overwrite=overwrite)), as_json)


@stores.command("import")
@folder_argument("source")
@click.option("--manifest", type=PATH, required=True, help="The manifest; each item gets a row.")
@output_options("The new store, NAME.zarr.")
@click.option(
    "--ids",
    type=PATH,
    help="The id of each row, if SOURCE has no ids: a CSV file with a column id.",
)
@click.option(
    "--recipe", type=PATH, help="How the features were made: TOML with backbone, "
    "preprocessing and precision."
)  # fmt: skip
@click.option("--backbone", metavar="NAME", help="The backbone, if no recipe names it.")
@json_option
def import_(source: Path, manifest: Path, output: Path, as_json: bool, **options: Any) -> None:
    """Make a store from features computed by other software.

    SOURCE is a matrix (.npy or .safetensors, with --ids), a Parquet or HDF5 file with ids, a
    .safetensors file with a tensor for each id, or a folder of files FILM/STEM.npy or
    FILM/STEM.pth. Exits with code 3 if rows failed.

    \b
    Example:
      obygaze stores import X.npy --ids ids.csv --manifest manifests/mine -o stores/theirs.zarr
    """
    from obygaze_features.imports import FailedRows
    from obygaze_features.store.metadata import unknown_parts

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FailedRows)  # they are listed below
        store = of.import_features(source, manifest, output, **options)
    facts = {"failures": store.failures, "unknown": unknown_parts(store.attributes)}
    show(_measure(store) | facts, as_json)
    exit_if(store.failures)


@stores.command()
@click.argument("stores_", nargs=-1, required=True, metavar="STORE...", type=ADDRESS)
@click.option(
    "--text", help="Find clips that match a text (clip, siglip, xclip, clap, all-minilm-l6-v2)."
)
@click.option("--like", metavar="ID", help="Find clips similar to this one, which is left out.")
@click.option("--image", type=PATH, help="Find clips that look like this picture.")
@click.option("--array", help="The array to search.  [default: native; with --frames: frames]")
@click.option("--frames", is_flag=True, help="Compare every frame; report each clip's best one.")
@film_option("Only clips of these films.")
@click.option("--top", type=click.IntRange(1), default=10, help="The maximum number of clips.")
@click.option("--backbone", metavar="[NAME=]PATH", help="The checkpoint that made the stores.")
@json_option
def search(stores_: tuple[Path | str, ...], as_json: bool, **query: Any) -> None:
    """Find the clips nearest to a text, a clip or a picture, by cosine.

    \b
    Example:
      obygaze stores search stores/xclip-kinetics.zarr --text "a woman seen through a window"
    """
    from obygaze_features.retrieval.search import match_rows

    opened = [of.open_store(address) for address in stores_]
    matches = match_rows(of.search(opened, **query), opened)
    for store in opened:
        if synthetic := store.attributes["backbone"].get("config", {}).get("synthetic"):
            note = f"Matches mean nothing: the backbone of {store.where} has {synthetic}."
            echo(f"WARNING: {note}", fg="yellow", bold=True, err=True)
    show({"matches": matches}, as_json)


def _measure(store: of.Store) -> dict[str, Any]:
    """Return a store's path, how many of its rows are done, failed and to do, and its size."""
    files = [path for path in store.path.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    return {"path": store.path, "rows": store.info()["rows"], "files": len(files), "size": size}
