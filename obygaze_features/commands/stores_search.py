"""`obygaze stores`: search and map."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from obygaze_features.common.cli import (
    ADDRESS,
    PATH,
    echo,
    echo_json,
    figure_options,
    json_option,
    names_option,
    output_option,
    overwrite_option,
    store_argument,
)
from obygaze_features.common.tables import align
from obygaze_features.common.text import counted, for_shell, format_time, redact_url
from obygaze_features.errors import UsageError


@click.command()
@click.argument("stores_", nargs=-1, required=True, metavar="STORE...", type=ADDRESS)
@click.option("--text", help="Find what this text describes (CLIP, SigLIP and X-CLIP).")
@click.option("--like", metavar="ID", help="Find clips like this one, which is left out.")
@click.option(
    "--vector",
    type=PATH,
    metavar="FILE",
    help="Find what is near a vector, in .npy, .json or .csv.",
)
@click.option("--array", help="The array to search.  [default: native; with --frames: frames]")
@click.option(
    "--frames", is_flag=True, help="Compare every frame, and say which moment is nearest."
)
@names_option("--films", multiple=True, metavar="FILM,...", help="Only clips of these films.")
@click.option("--top", type=click.IntRange(1), default=10, help="How many clips.")
@click.option(
    "--backbone",
    metavar="[NAME=]PATH",
    help="The checkpoint that the stores were made with, for --text.  [default: by its name]",
)
@output_option("Write the matches, as .csv, .json or a page in .html.", required=False)
@click.option(
    "--thumbnails", type=PATH, metavar="FOLDER", help="Pictures ID.jpg to show on the page."
)
@overwrite_option
@json_option
def search(
    stores_: tuple[Path | str, ...],
    output: Path | None,
    thumbnails: Path | None,
    overwrite: bool,
    as_json: bool,
    **query: Any,
) -> None:
    """Find the clips nearest to a text, a clip or a vector.

    Compares every row that is done by cosine: 1 means the same direction. A text is embedded by
    the text tower of the stores' backbone, whose weights must be those that the stores were made
    with. Several stores must be of one backbone.

    \b
    Examples:
      obygaze stores search stores/xclip-kinetics.zarr --text "a woman seen through a window"
      obygaze stores search ours.zarr theirs.zarr --like tt0108160-001 --top 5
      obygaze stores search stores/clip.zarr --text "a mirror" --frames --films tt0108160
      obygaze stores search stores/clip.zarr --text "a mirror" -o mirror.html --thumbnails thumbs
    """
    from obygaze_features.retrieval.search import check_output, save_matches
    from obygaze_features.retrieval.search import search as search_stores

    if output is not None:
        check_output(output, overwrite=overwrite)
    if thumbnails is not None and (output is None or output.suffix != ".html"):
        raise UsageError("--thumbnails are shown on a page; give one with -o PAGE.html")
    matches = search_stores(stores_, **query)
    like, frames = query["like"], query["frames"]
    if output is not None:
        title = query["text"] or (f"Like {like}" if like else f"Near {query['vector']}")
        save_matches(
            matches, output, title=title, thumbnails=thumbnails, like=like, overwrite=overwrite
        )
    for address in stores_:
        _warn_of_synthetic(address)
    if as_json:
        echo_json([asdict(match) for match in matches])
        return
    if not matches:
        echo("no rows to search: none is done")
        return
    header = ["", "clip", "film", *(["at"] if frames else []), "cosine"]
    rows = []
    for rank, match in enumerate(matches, start=1):
        moment = f"frame {match.frame}" if match.time is None else format_time(match.time)
        cosine = f"{match.cosine:.4f}"
        rows.append([rank, match.id, match.film or "-", *([moment] if frames else []), cosine])
    echo(align(header, rows, left=3))
    if output is not None:
        echo(f"-> {output}")
    else:
        store = for_shell(matches[0].store)
        echo(f"next: obygaze stores search {store} --like {matches[0].id}")


@click.command("map")
@store_argument("store")
@output_option("The map: .html (clips are named on hover), .png, .svg or .pdf.")
@click.option(
    "--color",
    default="film",
    metavar="film|level|CONCEPT|COLUMN",
    help="What the colours show; levels, concepts and columns of items are those of --manifest.",
)
@click.option("--manifest", type=PATH, help="The manifest whose labels colour the clips.")
@click.option(
    "--method",
    type=click.Choice(["pca", "umap"]),
    default="pca",
    help="Principal components, or UMAP where umap-learn is installed.",
)
@click.option("--array", default="native", help="The array to map.")
@figure_options
@overwrite_option
def map_(store: Path | str, output: Path, manifest: Path | None, **options: Any) -> None:
    """Draw all clips of a store in two dimensions, coloured by film, level, concept or column.

    \b
    Examples:
      obygaze stores map stores/xclip-kinetics.zarr -o films.html
      obygaze stores map stores/clip.zarr --manifest manifests/mine --color media -o files.html
      obygaze stores map stores/clip.zarr --manifest manifests/obygaze12 --color level -o levels.png
      obygaze stores map stores/clip.zarr --manifest manifests/obygaze12 --color Look -o look.html
    """
    from obygaze_features.manifests import Manifest
    from obygaze_features.retrieval.clip_map import write_map
    from obygaze_features.store import open_store

    labelled = None if manifest is None else Manifest.load(manifest)
    clip_map = write_map(open_store(store), output, manifest=labelled, **options)
    echo(f"{counted(len(clip_map.ids), 'clip')}, {clip_map.axes} -> {output}")
    _warn_of_synthetic(store)


def _warn_of_synthetic(address: Path | str) -> None:
    """Say that numbers mean nothing where a store's features are of no trained backbone."""
    from obygaze_features.store import open_store

    backbone = open_store(address).attributes["backbone"]
    if synthetic := backbone.get("config", {}).get("synthetic"):
        text = f"WARNING: the cosines mean nothing: {redact_url(address)} has {synthetic}"
        echo(text, fg="yellow", bold=True, err=True)
