"""The command `obygaze stores search`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from obygaze_features.common.cli import (
    ADDRESS,
    PATH,
    echo,
    echo_json,
    film_option,
    json_option,
    output_options,
)
from obygaze_features.common.printer import align
from obygaze_features.common.text import for_shell, format_time
from obygaze_features.errors import UsageError

if TYPE_CHECKING:
    from obygaze_features.store import Store


@click.command()
@click.argument("stores_", nargs=-1, required=True, metavar="STORE...", type=ADDRESS)
@click.option("--text", help="Find clips that match a text (CLIP, SigLIP, X-CLIP and CLAP).")
@click.option("--like", metavar="ID", help="Find clips similar to this one, which is left out.")
@click.option("--array", help="The array to search.  [default: native; with --frames: frames]")
@click.option("--frames", is_flag=True, help="Compare every frame, and report the best moment.")
@film_option("Only clips of these films.")
@click.option("--top", type=click.IntRange(1), default=10, help="The number of clips.")
@click.option(
    "--backbone",
    metavar="[NAME=]PATH",
    help="The checkpoint that made the stores, for --text.  [default: the stores' backbone]",
)
@click.option(
    "--thumbnails", type=PATH, metavar="FOLDER", help="A folder of pictures (ID.jpg) for the page."
)
@output_options("A page with the matches (.html).", required=False)
@json_option
def search(
    stores_: tuple[Path | str, ...],
    thumbnails: Path | None,
    output: Path | None,
    overwrite: bool,
    as_json: bool,
    **query: Any,
) -> None:
    """Find the clips nearest to a text or a clip.

    Compares every finished row by cosine similarity; 1 means the same direction. A text is embedded
    by the text encoder of the stores' backbone, which must have the same weights that made the
    stores. All stores must come from the same backbone.

    \b
    Examples:
      obygaze stores search stores/xclip-kinetics.zarr --text "a woman seen through a window"
      obygaze stores search ours.zarr theirs.zarr --like tt0108160-001 --top 5
      obygaze stores search stores/clip.zarr --text "a mirror" --frames --film tt0108160
      obygaze stores search stores/clip.zarr --text "a mirror" -o mirror.html --thumbnails thumbs
    """
    from obygaze_features.common.files import refuse_to_overwrite
    from obygaze_features.items.films import find_films
    from obygaze_features.retrieval.search import film_titles_of, match_rows, write_page
    from obygaze_features.retrieval.search import search as search_stores
    from obygaze_features.store import open_store

    if output is not None:
        if output.suffix != ".html":
            raise UsageError(f"{output}: matches are written as a page. Name it {output}.html")
        refuse_to_overwrite(output, overwrite=overwrite)
    if thumbnails is not None and output is None:
        raise UsageError("--thumbnails needs a page: -o PAGE.html")

    opened = [open_store(address) for address in stores_]
    titles = film_titles_of(opened)
    query["films"] = find_films(query["films"], titles) or None
    matches = search_stores(opened, **query)
    rows = match_rows(matches, opened, titles)
    _warn_of_synthetic(opened)

    if output is not None:
        title = f"Clips like {query['like']}" if query["like"] else f"Clips for “{query['text']}”"
        write_page(rows, output, title=title, thumbnails=thumbnails, overwrite=overwrite)
    if as_json:
        echo_json(rows)
        return
    if not rows:
        echo("no finished rows to search")
        return

    table = []
    for rank, row in enumerate(rows, start=1):
        time = row["start"] if row["time"] is None else row["time"]
        at = "-" if time is None else format_time(time)
        table.append([rank, row["id"], row["title"] or "-", at, f"{row['cosine']:.4f}"])
    echo(align(["", "clip", "film", "at", "cosine"], table, left=3))
    if output is not None:
        echo(f"-> {output}")
    else:
        echo(f"next: obygaze stores search {for_shell(rows[0]['store'])} --like {rows[0]['id']}")


def _warn_of_synthetic(stores: Sequence[Store]) -> None:
    """Warn that similarities mean nothing if a store was made by an untrained backbone."""
    for store in stores:
        if synthetic := store.attributes["backbone"].get("config", {}).get("synthetic"):
            text = f"WARNING: these similarities mean nothing: {store.where} has {synthetic}"
            echo(text, fg="yellow", bold=True, err=True)
