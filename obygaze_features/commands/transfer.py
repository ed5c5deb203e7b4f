"""`obygaze stores push` and `pull`: whole stores to and from elsewhere."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import click

from obygaze_features.commands.exchange import name_left_out
from obygaze_features.common.cli import (
    ADDRESS,
    echo_json,
    folder_argument,
    json_option,
    overwrite_option,
    store_argument,
)
from obygaze_features.common.text import counted, size
from obygaze_features.errors import ObygazeError

__all__ = ["pull", "push"]


@click.command()
@folder_argument("store")
@click.argument("target", type=ADDRESS)
@json_option
def push(store: Path, target: Path | str, as_json: bool) -> None:
    """Put a final STORE elsewhere: into a folder, to S3, or on the Hugging Face Hub.

    TARGET is a folder, which gets the store under its own name, as cp does; or NAME.zarr, to give
    it another. On the Hub it is a data set of the store's own. Where something else is already,
    and inside another store, nothing is sent. Interrupted, the same command goes on. In the end
    every file there is compared with its checksum.

    \b
    Examples:
      obygaze stores push stores/xclip.zarr /mnt/shared
      obygaze stores push stores/xclip.zarr s3://bucket/lab/theirs.zarr
      obygaze stores push stores/xclip.zarr hf://datasets/OWNER/xclip-features
    """
    from obygaze_features.store.exchange import push as put

    with _said_to_go_on("What was sent"):
        done = put(store, target)
    if as_json:
        echo_json(asdict(done))
        return
    name_left_out(done.left_out)
    click.echo(
        f"{counted(done.files, 'file')}, {size(done.size)}, of which {done.sent} sent now, all "
        f"verified -> {done.where}"
    )


@click.command()
@store_argument("store")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    help="The new store, NAME.zarr.",
)
@overwrite_option
@json_option
def pull(store: Path | str, output: Path, overwrite: bool, as_json: bool) -> None:
    """Fetch a final STORE from elsewhere: a URL, or an archive.

    Interrupted, the same command goes on where it was; only an archive that its server gives no
    parts of is begun anew. Every file is held to its checksum, and the store appears whole or not
    at all; what --overwrite replaces stays until then.

    \b
    Examples:
      obygaze stores pull https://lab.example/xclip.zarr -o stores/xclip.zarr
      obygaze stores pull s3://bucket/xclip.zarr -o stores/xclip.zarr
      obygaze stores pull hf://datasets/OWNER/xclip-features -o stores/xclip.zarr
    """
    from obygaze_features.store.exchange import pull as fetch

    with _said_to_go_on("What was fetched"):
        done = fetch(store, output, overwrite=overwrite)
    if as_json:
        echo_json({**asdict(done), "path": str(done.path)})
        return
    click.echo(
        f"{counted(done.files, 'file')}, {size(done.size)}, of which {size(done.fetched)} fetched "
        f"now, all verified -> {done.path}"
    )


@contextlib.contextmanager
def _said_to_go_on(what: str) -> Iterator[None]:
    """Say what an interrupted command leaves."""
    try:
        yield
    except (ObygazeError, OSError):
        raise
    except BaseException:  # Ctrl-C and the like
        click.echo(f"{what} is kept; the same command goes on from there.", err=True)
        raise
