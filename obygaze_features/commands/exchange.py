"""`obygaze stores pack`, `unpack`, `export` and `import`: stores on the move."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from obygaze_features.common.cli import (
    echo_json,
    folder_argument,
    json_option,
    overwrite_option,
    store_argument,
)
from obygaze_features.common.text import counted, for_shell, size
from obygaze_features.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from obygaze_features.store.exchange import Exported, MatrixSource, Packed, Provenance, Source

__all__ = ["export", "import_", "name_left_out", "pack", "unpack"]

MOST_NAMED = 20
"""Failed rows that are named in the terminal; the store names all."""
PARTLY_DONE = 3
"""The exit code where some rows failed."""

Command = TypeVar("Command", bound=Callable[..., Any])


def _output(what: str, *, required: bool = True) -> Callable[[Command], Command]:
    path = click.Path(path_type=Path)
    return click.option("-o", "--output", type=path, required=required, help=what)


@click.command()
@folder_argument("store")
@_output("The archive, NAME.zip.  [default: that of the store, here]", required=False)
@overwrite_option
@json_option
def pack(store: Path, output: Path | None, overwrite: bool, as_json: bool) -> None:
    """Put a final store into one zip file that can be read in place.

    Nothing is compressed, so that Zarr and others read the archive without taking it apart. Each
    file is held to its checksum on the way.

    \b
    Examples:
      obygaze stores pack stores/xclip.zarr
      obygaze stores pack stores/xclip.zarr -o xclip.zip
    """
    from obygaze_features.store.exchange import pack as put

    output = output or Path(f"{store.resolve().name}.zip")
    _report_packed(put(store, output, overwrite=overwrite), as_json)


@click.command()
@folder_argument("archive")
@_output("The store, NAME.zarr.  [default: that of the archive, here]", required=False)
@overwrite_option
@json_option
def unpack(archive: Path, output: Path | None, overwrite: bool, as_json: bool) -> None:
    """Take a store out of its zip file, checked to the last byte, or refuse it.

    An archive with anything that `obygaze stores pack` would not put there is refused: other
    names, links, compressed entries, files that the store does not list.

    \b
    Examples:
      obygaze stores unpack xclip.zarr.zip
      obygaze stores unpack xclip.zip -o stores/xclip.zarr
    """
    from obygaze_features.store.exchange import unpack as take

    output = output or Path(f"{archive.stem.removesuffix('.zarr')}.zarr")
    _report_packed(take(archive, output, overwrite=overwrite), as_json)


@click.command()
@store_argument("store")
@_output("The file: NAME.h5, NAME.hdf5 or NAME.parquet; its end says the format.")
@click.option(
    "--arrays",
    metavar="NAME,NAME",
    help="Which.  [default: all; in Parquet those with one vector a clip]",
)
@overwrite_option
@json_option
def export(
    store: Path | str, output: Path, arrays: str | None, overwrite: bool, as_json: bool
) -> None:
    """Write a store as HDF5 or Parquet, for programs that do not read Zarr.

    HDF5 gets a dataset an array; Parquet a row a clip, with an array a column. Rows that are not
    done are NaN in the one and null in the other.

    \b
    Examples:
      obygaze stores export stores/xclip.zarr -o xclip.h5
      obygaze stores export stores/xclip.zarr -o xclip.parquet --arrays native,frames
      obygaze stores export https://lab.example/xclip.zarr -o xclip.parquet
    """
    from obygaze_features.store import open_store
    from obygaze_features.store.exchange import export_hdf5, export_parquet

    formats = {".h5": export_hdf5, ".hdf5": export_hdf5, ".parquet": export_parquet}
    write = formats.get(output.suffix.lower())
    if write is None:
        raise UsageError(f"{output}: the end of the name says the format: {', '.join(formats)}")
    names = [one.strip() for one in arrays.split(",")] if arrays else None
    made = write(open_store(store), output, arrays=names, overwrite=overwrite)
    _report_exported(made, as_json)


@click.group("import")
def import_() -> None:
    """Make a store of features that others computed, for the items of a manifest.

    \b
    Examples:
      obygaze stores import pth features --manifest manifests/obygaze12 -o stores/theirs.zarr
      obygaze stores import npy X.npy --ids ids.txt --manifest manifests/mine -o stores/theirs.zarr
      obygaze stores import parquet X.parquet --manifest manifests/mine -o stores/theirs.zarr
    """


def _importing(command: Command) -> Command:
    """The options of every import."""
    for option in (
        json_option,
        click.option(
            "--retry-failed", is_flag=True, help="Look again for rows that failed before."
        ),
        click.option("--precision", metavar="NAME", help="In which they were computed."),
        click.option("--preprocessing", metavar="MODE", help="How frames were prepared."),
        click.option(
            "--backbone",
            metavar="NAME",
            help="What the features were computed with: a name of obygaze features backbones, "
            "or another.",
        ),
        click.option(
            "--recipe",
            type=click.Path(path_type=Path),
            help="A TOML or JSON file that says so at length: precision, and the tables backbone "
            "(name, family, revision, weights_sha256, config) and preprocessing.",
        ),
        _output("The store, NAME.zarr; an interrupted import is resumed."),
        click.option(
            "--manifest",
            type=click.Path(path_type=Path),
            required=True,
            help="The folder of the manifest whose items get a row each.",
        ),
    ):
        command = option(command)
    return command


@import_.command()
@click.argument("folders", nargs=-1, required=True, metavar="[ARRAY=]FOLDER...")
@_importing
def pth(folders: tuple[str, ...], **options: Any) -> None:
    """From folders of PyTorch files, FILM/STEM.pth, as the paper's authors keep features.

    A file holds a tensor, or a dictionary with one under the array's name; shape and type are what
    most files have. No program in a file is run. A folder is the array native unless it is named.

    \b
    Examples:
      obygaze stores import pth features --manifest manifests/obygaze12 -o stores/theirs.zarr
      obygaze stores import pth native=pooled frames=frames --manifest manifests/obygaze12 \\
          --backbone xclip-kinetics -o stores/theirs.zarr
    """
    from obygaze_features.store.exchange import pth_folders, stated

    said = _provenance(options) or stated()
    _import(pth_folders(_by_array(folders), said), options)


def _whose_rows(command: Command) -> Command:
    """The options of an import of files with a row an item."""
    for option in (
        click.option("--in-order", is_flag=True, help="Row i is item i of the manifest."),
        click.option(
            "--ids",
            type=click.Path(path_type=Path),
            help="Whose each row is: a text file with an id a line, CSV with a column id, or .npy.",
        ),
    ):
        command = option(command)
    return command


@import_.command()
@click.argument("paths", nargs=-1, required=True, metavar="[ARRAY=]FILE_OR_FOLDER...")
@_whose_rows
@_importing
def npy(paths: tuple[str, ...], **options: Any) -> None:
    """From a NumPy matrix with ids, or folders of NumPy files, FILM/STEM.npy.

    A file or folder is the array native unless it is named. For a file, --ids says whose each row
    is. In a folder, shape and type are what most files have. What holds objects is not read.

    \b
    Examples:
      obygaze stores import npy X.npy --ids ids.txt --manifest manifests/mine -o stores/theirs.zarr
      obygaze stores import npy features --manifest manifests/mine -o stores/theirs.zarr \\
          --recipe made-with.toml
    """
    from obygaze_features.store.exchange import npy_folders, npy_source, stated

    provenance, by_array = _provenance(options) or stated(), _by_array(paths)
    if any(path.is_file() for path in by_array.values()):
        source = npy_source(by_array, _ids(options), provenance)
        _import(_with_owners(source, options), options)
    elif options["ids"] or options["in_order"]:
        raise UsageError(
            f"{paths[0]} is not a file; --ids and --in-order are for one file with all rows"
        )
    else:
        _import(npy_folders(by_array, provenance), options)


@import_.command()
@folder_argument("file")
@_whose_rows
@_importing
def safetensors(file: Path, **options: Any) -> None:
    """From a safetensors file with a row, or a tensor, for each item.

    A tensor under the id of each item, or tensors with a row an item: the only such tensor is the
    array native; several keep their names.

    \b
    Examples:
      obygaze stores import safetensors X.safetensors --ids ids.txt \\
          --manifest manifests/mine -o stores/theirs.zarr
    """
    from obygaze_features.manifests import Manifest
    from obygaze_features.store.exchange import safetensors_source, stated

    provenance, manifest = _provenance(options) or stated(), Manifest.load(options["manifest"])
    source = safetensors_source(file, _ids(options), provenance, manifest)
    _import(_with_owners(source, options), options)


@import_.command()
@folder_argument("file")
@click.option("--ids", default="id", show_default=True, metavar="COLUMN", help="The column of ids.")
@_importing
def parquet(file: Path, ids: str, **options: Any) -> None:
    """From a Parquet table: an exported store, or any with a column of ids.

    The only column of lists is the array native; several keep their names; without any, all
    columns of numbers together are native.

    \b
    Examples:
      obygaze stores import parquet X.parquet --manifest manifests/mine -o stores/theirs.zarr
      obygaze stores import parquet X.parquet --ids clip --backbone clip-vit-base-patch32 \\
          --manifest manifests/mine -o stores/theirs.zarr
    """
    from obygaze_features.store.exchange import parquet_source

    _import(parquet_source(file, ids, _provenance(options)), options)


@import_.command()
@folder_argument("file")
@_importing
def hdf5(file: Path, **options: Any) -> None:
    """From an HDF5 file: an exported store, or any with ids and datasets of as many rows.

    \b
    Examples:
      obygaze stores import hdf5 xclip.h5 --manifest manifests/mine -o stores/xclip.zarr
      obygaze stores import hdf5 theirs.h5 --manifest manifests/mine -o stores/theirs.zarr \\
          --backbone vivit --precision float16
    """
    from obygaze_features.store.exchange import Hdf5Source

    _import(Hdf5Source(file, _provenance(options)), options)


def _ids(options: dict[str, Any]) -> list[str] | None:
    """The ids of the rows of a file; None if no file has them."""
    from obygaze_features.store.exchange import read_ids

    if options["ids"] and options["in_order"]:
        raise UsageError("give --ids or --in-order, not both")
    return read_ids(options["ids"]) if options["ids"] else None


def _with_owners(source: MatrixSource, options: dict[str, Any]) -> MatrixSource:
    """The source, if it was said whose its rows are."""
    if source.ids is None and not options["in_order"]:
        raise UsageError(
            f"{source.path} does not say whose its rows are; give --ids FILE with an id a line, "
            "or --in-order if row i is item i of the manifest"
        )
    return source


def _import(source: Source, options: dict[str, Any]) -> None:
    from obygaze_features.manifests import Manifest
    from obygaze_features.store.exchange import bring_in

    output, manifest = options["output"], Manifest.load(options["manifest"])
    store = bring_in(source, manifest, output, retry_failed=options["retry_failed"])
    failures, rows = store.failures, store.info()["rows"]
    if options["as_json"]:
        unknown = source.provenance.lacking
        counts = {key: rows[key] for key in ("done", "failed", "to_do")}
        echo_json({"path": str(output), **counts, "failures": failures, "unknown": unknown})
    else:
        for one, reason in list(failures.items())[:MOST_NAMED]:
            click.echo(f"  {one}: {reason}", err=True)
        if len(failures) > MOST_NAMED:
            more = len(failures) - MOST_NAMED
            click.echo(f"  and {more:,} more: obygaze stores info {output}", err=True)
        if lacking := source.provenance.lacking:
            click.echo(f"recorded as unknown: {', '.join(lacking)}")
        click.echo(
            f"{counted(rows['all'], 'row')}: {rows['done']:,} done, {rows['failed']:,} failed, "
            f"{rows['to_do']:,} to do"
        )
        failed = ", or mend what failed and run this again with --retry-failed"
        click.echo(f"next: obygaze stores finalise {for_shell(output)}{failed if failures else ''}")
    if failures:
        click.get_current_context().exit(PARTLY_DONE)


def _provenance(options: dict[str, Any]) -> Provenance | None:
    """What was said of how the features were made, if anything was."""
    from obygaze_features.store.exchange import read_provenance, stated

    words = {name: options[name] for name in ("backbone", "preprocessing", "precision")}
    if options["recipe"] and any(words.values()):
        raise UsageError("give a recipe, or --backbone, --preprocessing and --precision, not both")
    if options["recipe"]:
        return read_provenance(options["recipe"])
    return stated(**words) if any(words.values()) else None


def _by_array(folders: Sequence[str]) -> dict[str, Path]:
    """Array -> path, by ``[ARRAY=]PATH``."""
    found: dict[str, Path] = {}
    for text in folders:
        name, named, folder = text.partition("=")
        if not named or Path(text).exists():
            name, folder = "native", text
        if name in found:
            raise UsageError(f"two paths are for the array {name}; name them: ARRAY=PATH")
        found[name] = Path(folder)
    return found


def name_left_out(names: Sequence[str]) -> None:
    """Say which files of a folder did not travel, as they are none of the store's."""
    if names:
        more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
        click.echo(f"left out, as no file of the store: {names[0]}{more}", err=True)


def _report_packed(made: Packed, as_json: bool) -> None:
    if as_json:
        echo_json({**asdict(made), "path": str(made.path)})
    else:
        name_left_out(made.left_out)
        click.echo(f"{counted(made.files, 'file')}, {size(made.size)} -> {made.path}")


def _report_exported(made: Exported, as_json: bool) -> None:
    if as_json:
        echo_json({**asdict(made), "path": str(made.path)})
    else:
        click.echo(
            f"{counted(made.rows, 'row')}, {made.done:,} done, of {', '.join(made.arrays)}; "
            f"{size(made.size)} -> {made.path}"
        )
