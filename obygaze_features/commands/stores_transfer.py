"""The commands of `obygaze stores` that transfer stores, such as pack, export and push."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from obygaze_features.commands._shared import echo_failures, resumable
from obygaze_features.common.cli import (
    ADDRESS,
    PATH,
    echo,
    echo_json,
    exit_if,
    folder_argument,
    join_options,
    json_option,
    names_option,
    output_option,
    output_options,
    store_argument,
)
from obygaze_features.common.text import counted, for_shell, format_size, join_some
from obygaze_features.errors import UsageError

if TYPE_CHECKING:
    from obygaze_features.store.export import Exported
    from obygaze_features.store.transfer import Packed, Pulled, Pushed

RESUMABLE = "Files already {} are kept; run the same command again to resume."


@click.command()
@folder_argument("store")
@output_options("The zip file.  [default: STORE.zip, in the current folder]", required=False)
@json_option
def pack(store: Path, output: Path | None, overwrite: bool, as_json: bool) -> None:
    """Pack a final store into one zip file, readable as it is.

    Files are not compressed, so Zarr and other programs can read them without unpacking. Each file
    is verified against its checksum.

    \b
    Examples:
      obygaze stores pack stores/xclip.zarr
      obygaze stores pack stores/xclip.zarr -o xclip.zip
    """
    from obygaze_features.store import open_store

    output = output or Path(f"{store.resolve().name}.zip")
    done = open_store(store).pack(output, overwrite=overwrite)
    _report(done, f"{_files(done)} -> {output}", as_json)


@click.command()
@folder_argument("archive")
@output_options("The store.  [default: the zip file's name, in the current folder]", required=False)
@json_option
def unpack(archive: Path, output: Path | None, overwrite: bool, as_json: bool) -> None:
    """Unpack a store from its zip file, and verify every file.

    Refuses a zip file that contains anything that `obygaze stores pack` does not write: unexpected
    names, links, compressed files, or files that the store does not list.

    \b
    Examples:
      obygaze stores unpack xclip.zarr.zip
      obygaze stores unpack xclip.zip -o stores/xclip.zarr
    """
    from obygaze_features.store.transfer import pull

    output = output or Path(f"{archive.stem.removesuffix('.zarr')}.zarr")
    done = pull(archive, output, overwrite=overwrite)
    _report(done, f"{_files(done)} -> {output}", as_json)


@click.command()
@store_argument("store")
@output_options("The file: NAME.h5 or NAME.hdf5.")
@names_option(
    "--arrays",
    metavar="NAME,NAME",
    help="The arrays to export.  [default: all]",
)
@json_option
def export(store: Path | str, output: Path, as_json: bool, **options: Any) -> None:
    """Write a store as HDF5.

    Use this for programs that cannot read Zarr. The file has one dataset per array. Unfinished rows
    are NaN, or -1 in arrays of integers.

    \b
    Examples:
      obygaze stores export stores/xclip.zarr -o xclip.h5
      obygaze stores export https://lab.example/xclip.zarr -o xclip.h5 --arrays native,frames
    """
    from obygaze_features.store import open_store

    result = open_store(store).export(output, **options)
    line = (
        f"{', '.join(result.arrays)}: {counted(result.rows, 'row')}, {result.done:,} done; "
        f"{format_size(result.size)} -> {output}"
    )
    _report(result, line, as_json)


@click.command()
@folder_argument("store")
@click.argument("target", type=ADDRESS)
@json_option
def push(store: Path, target: Path | str, as_json: bool) -> None:
    """Send a final STORE to a folder, S3 or the Hugging Face Hub.

    TARGET is a folder, into which the store is copied under its own name (as with cp), or NAME.zarr
    to rename the copy. On the Hub, each store has its own dataset. Nothing is sent if the target
    contains other files. The same command resumes an interrupted push. Every file that is sent is
    verified.

    \b
    Examples:
      obygaze stores push stores/xclip.zarr /mnt/shared
      obygaze stores push stores/xclip.zarr s3://bucket/lab/theirs.zarr
      obygaze stores push stores/xclip.zarr hf://datasets/OWNER/xclip-features
    """
    from obygaze_features.store import open_store

    with resumable(RESUMABLE.format("sent")):
        done = open_store(store).push(target)
    line = f"{_files(done)}, {done.sent} of them sent now, all verified -> {done.where}"
    _report(done, line, as_json)


@click.command()
@store_argument("store")
@output_options("The new store, NAME.zarr.")
@json_option
def pull(store: Path | str, output: Path, overwrite: bool, as_json: bool) -> None:
    """Download a final STORE from a URL, or unpack it from a zip file.

    The same command resumes an interrupted download. Every file is verified against its checksum.
    The store appears only when it is complete; with --overwrite, it then replaces the old store.

    \b
    Examples:
      obygaze stores pull https://lab.example/xclip.zarr -o stores/xclip.zarr
      obygaze stores pull s3://bucket/xclip.zarr -o stores/xclip.zarr
      obygaze stores pull hf://datasets/OWNER/xclip-features -o stores/xclip.zarr
    """
    from obygaze_features.store import transfer

    with resumable(RESUMABLE.format("fetched")):
        done = transfer.pull(store, output, overwrite=overwrite)
    fetched = format_size(done.fetched)
    _report(done, f"{_files(done)}, {fetched} fetched now, all verified -> {output}", as_json)


@click.group("import")
def import_() -> None:
    """Make a store from features computed by other software.

    \b
    Examples:
      obygaze stores import pth features --manifest manifests/obygaze12 -o stores/theirs.zarr
      obygaze stores import npy X.npy --ids ids.txt --manifest manifests/mine -o stores/theirs.zarr
      obygaze stores import hdf5 X.h5 --manifest manifests/mine -o stores/theirs.zarr
    """


_import_options = join_options(
    click.option("--manifest", type=PATH, required=True,
                 help="The manifest's folder; the store gets one row per item."),
    output_option("The store, NAME.zarr; an interrupted import is resumed."),
    click.option("--recipe", type=PATH,
                 help="A TOML or JSON file that describes the features: precision, and the tables "
                 "backbone (name, family, revision, weights_sha256, config) and preprocessing."),
    click.option("--backbone", metavar="NAME",
                 help="The backbone that made the features: a name from `obygaze features "
                 "backbones`, or any other name."),
    json_option,
)  # fmt: skip
"""The options of every import."""


@import_.command()
@click.argument("folders", nargs=-1, required=True, metavar="[ARRAY=]FOLDER...")
@_import_options
def pth(folders: tuple[str, ...], **options: Any) -> None:
    """Import folders of PyTorch files, FILM/STEM.pth.

    A file holds a tensor, or a dictionary with a tensor under the array's name. Files whose shape
    or type differs from most are recorded as failed. Code in a file is never executed. A folder
    becomes the array `native` unless you name an array.

    \b
    Examples:
      obygaze stores import pth features --manifest manifests/obygaze12 -o stores/theirs.zarr
      obygaze stores import pth native=pooled frames=frames --manifest manifests/obygaze12 \\
          --backbone xclip-kinetics -o stores/theirs.zarr
    """
    _import("pth", _by_array(folders), **options)


@import_.command()
@click.argument("paths", nargs=-1, required=True, metavar="[ARRAY=]FILE_OR_FOLDER...")
@click.option(
    "--ids",
    type=PATH,
    help="The id of each row: a text file with one id per line, or CSV with an id column.",
)
@_import_options
def npy(paths: tuple[str, ...], **options: Any) -> None:
    """Import a NumPy matrix with ids, or folders of NumPy files.

    A file or folder becomes the array `native` unless you name an array. For a file, --ids lists
    the id of each row. A folder contains files FILM/STEM.npy; files whose shape or type differs
    from most are recorded as failed. Files that hold Python objects are refused.

    \b
    Examples:
      obygaze stores import npy X.npy --ids ids.txt --manifest manifests/mine -o stores/theirs.zarr
      obygaze stores import npy features --manifest manifests/mine -o stores/theirs.zarr \\
          --recipe made-with.toml
      obygaze stores import npy X.npy --ids manifests/mine/items.csv --manifest manifests/mine \\
          -o stores/bodies.zarr
    """
    _import("npy", _by_array(paths), **options)


@import_.command()
@folder_argument("file")
@_import_options
def hdf5(file: Path, **options: Any) -> None:
    """Import an HDF5 file: an exported store, or datasets with ids.

    \b
    Examples:
      obygaze stores import hdf5 xclip.h5 --manifest manifests/mine -o stores/xclip.zarr
      obygaze stores import hdf5 theirs.h5 --manifest manifests/mine -o stores/theirs.zarr \\
          --backbone vivit
    """
    _import("hdf5", file, **options)


def _import(
    kind: str,
    source: Path | dict[str, Path],
    *,
    manifest: Path,
    output: Path,
    as_json: bool,
    **options: Any,
) -> None:
    from obygaze_features.manifests import Manifest
    from obygaze_features.store.format import Status
    from obygaze_features.store.import_features import import_features
    from obygaze_features.store.metadata import unknown_parts

    store = import_features(source, Manifest.load(manifest), output, kind=kind, **options)
    failures, unknown = store.failures, unknown_parts(store.attributes)
    done, to_do = (int((store.status == code).sum()) for code in (Status.DONE, Status.TODO))
    if as_json:
        counts = {"done": done, "failed": len(failures), "to_do": to_do}
        echo_json({"path": str(output), **counts, "failures": failures, "unknown": unknown})
    else:
        echo_failures(failures)
        if unknown:
            echo(f"recorded as unknown: {', '.join(unknown)}")
        rows = counted(len(store), "row")
        echo(f"{rows}: {done:,} done, {len(failures):,} failed, {to_do:,} to do")
        echo(f"next: obygaze stores finalise {for_shell(output)}")
    exit_if(failures)


def _by_array(texts: Sequence[str]) -> dict[str, Path]:
    """Parse arguments such as ``[ARRAY=]PATH`` into paths by array."""
    paths: dict[str, Path] = {}
    for text in texts:
        name, named, path = text.partition("=")
        if not named or Path(text).exists():
            name, path = "native", text
        if name in paths:
            raise UsageError(f"two paths are for the array {name}; name the arrays with ARRAY=PATH")
        paths[name] = Path(path)
    return paths


def _report(result: Exported | Packed | Pushed | Pulled, line: str, as_json: bool) -> None:
    """Print a command's result and the files that it left out."""
    values = {"left_out": [], **result._asdict()}
    if as_json:
        echo_json({k: str(value) if k == "path" else value for k, value in values.items()})
        return
    if names := values["left_out"]:
        echo(f"left out (not part of the store): {join_some(names, 1)}", err=True)
    echo(line)


def _files(done: Packed | Pushed | Pulled) -> str:
    return f"{counted(done.files, 'file')}, {format_size(done.size)}"
