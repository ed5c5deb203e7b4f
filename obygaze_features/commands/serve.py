"""`obygaze stores serve`: a folder of stores, read from other machines."""

from __future__ import annotations

import socket
from pathlib import Path

import click

from obygaze_features.common.cli import folder_argument

__all__ = ["serve"]

EVERYWHERE = ("", "0.0.0.0", "::")  # noqa: S104  (as somebody asked for)


@click.command()
@folder_argument("folder")
@click.option(
    "--host",
    default="127.0.0.1",
    show_default=True,
    help="The address to listen at; 0.0.0.0 for all that this machine has.",
)
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True)
def serve(folder: Path, host: str, port: int) -> None:
    """Offer the stores in a FOLDER to other machines, for as long as this runs.

    Everybody who reaches the address may read what lies in the folder, and nobody may write. Other
    files, too: give a folder of its own. Ctrl-C ends it.

    \b
    Examples:
      obygaze stores serve stores
      obygaze stores serve stores --host 0.0.0.0 --port 8080
    """
    from obygaze_features.store.serving import server_of

    with server_of(folder, host, port) as server:
        name = socket.gethostname() if host in EVERYWHERE else host
        url = f"http://{f'[{name}]' if ':' in name else name}:{server.server_port}"
        stores = sorted(one.name for end in ("zarr", "zip") for one in folder.glob(f"*.{end}"))
        if (folder / "zarr.json").is_file():
            example = url
        else:
            example = f"{url}/{stores[0] if stores else 'NAME.zarr'}"
        click.echo(f"{folder} is served at {url} until Ctrl-C")
        click.echo(f"there: obygaze stores info {example}")
        try:
            server.serve_forever(0.1)
        except KeyboardInterrupt:
            click.echo("ended", err=True)
