"""The commands `obygaze stores search` and `obygaze stores map`."""

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
    figure_options,
    film_option,
    join_options,
    json_option,
    output_option,
    overwrite_option,
    store_argument,
)
from obygaze_features.common.tables import align
from obygaze_features.common.text import for_shell, format_time
from obygaze_features.errors import UsageError

if TYPE_CHECKING:
    from obygaze_features.store import Store

page_options = join_options(
    click.option("--manifest", type=PATH, help="The manifest of the clips, for films and labels."),
    click.option("--labels", metavar="NAME", help="The label set (default: the manifest's)."),
    click.option("--report", type=PATH, help="A report page for clips to link to."),
)


@click.command()
@click.argument("stores_", nargs=-1, required=True, metavar="STORE...", type=ADDRESS)
@click.option("--text", help="Find clips that match a text (CLIP, SigLIP, X-CLIP and CLAP).")
@click.option("--like", metavar="ID", help="Find clips similar to this one, which is left out.")
@click.option(
    "--vector",
    type=PATH,
    metavar="FILE",
    help="Find clips near the vector in a file (.npy, .json or .csv).",
)
@click.option("--array", help="The array to search.  [default: native; with --frames: frames]")
@click.option("--frames", is_flag=True, help="Compare every frame, and report the best moment.")
@film_option("Only clips of these films.")
@click.option("--top", type=click.IntRange(1), default=10, help="The number of clips.")
@click.option(
    "--backbone",
    metavar="[NAME=]PATH",
    help="The checkpoint that made the stores, for --text.  [default: the stores' backbone]",
)
@output_option("Write the matches, as .csv, .json or a page in .html.", required=False)
@click.option(
    "--thumbnails", type=PATH, metavar="FOLDER", help="A folder of pictures (ID.jpg) for pages."
)
@page_options
@overwrite_option
@json_option
def search(
    stores_: tuple[Path | str, ...],
    output: Path | None,
    thumbnails: Path | None,
    manifest: Path | None,
    labels: str | None,
    report: Path | None,
    overwrite: bool,
    as_json: bool,
    **query: Any,
) -> None:
    """Find the clips nearest to a text, a clip or a vector.

    Compares every finished row by cosine similarity; 1 means the same direction. A text is embedded
    by the text encoder of the stores' backbone, which must have the same weights that made the
    stores. All stores must come from the same backbone.

    \b
    Examples:
      obygaze stores search stores/xclip-kinetics.zarr --text "a woman seen through a window"
      obygaze stores search ours.zarr theirs.zarr --like tt0108160-001 --top 5
      obygaze stores search stores/clip.zarr --text "a mirror" --frames --film tt0108160
      obygaze stores search stores/clip.zarr --text "a mirror" -o mirror.html --thumbnails thumbs
      obygaze stores search mobygaze/words.zarr --like tt0110912-0013 \\
        --manifest mobygaze/minutes --report report.html -o like.html
    """
    from obygaze_features.items.films import find_films
    from obygaze_features.retrieval.clips import describe_clips, link_to
    from obygaze_features.retrieval.search import check_output, match_rows, save_matches
    from obygaze_features.retrieval.search import search as search_stores
    from obygaze_features.store import open_store

    if output is not None:
        check_output(output, overwrite=overwrite)
    if thumbnails is not None and (output is None or output.suffix != ".html"):
        raise UsageError("--thumbnails needs a page: -o PAGE.html")
    link, opened = link_to(report, output), [open_store(address) for address in stores_]
    clips = describe_clips(opened, manifest, labels, link)
    query["films"] = find_films(query["films"], clips.titles) or None
    matches = search_stores(opened, **query)
    like, frames, vector = query["like"], query["frames"], query["vector"]
    if output is not None:
        about = f"near {vector.name}" if vector else f"for “{query['text']}”"
        save_matches(
            matches, output, clips, title="" if like else f"Clips {about}", thumbnails=thumbnails,
            like=like, overwrite=overwrite,
        )  # fmt: skip
    _warn_of_synthetic(opened)
    rows = match_rows(matches, clips)
    if as_json:
        echo_json(rows)
        return
    if not matches:
        echo("no finished rows to search")
        return
    header = ["", "clip", "film", "from", *(["nearest at"] if frames else []), "cosine"]
    table = []
    for rank, (match, row) in enumerate(zip(matches, rows, strict=True), start=1):
        moment = f"frame {match.frame}" if match.time is None else format_time(match.time)
        cells = [rank, match.id, row["title"] or "-", row["from"] or "-"]
        table.append([*cells, *([moment] if frames else []), f"{match.cosine:.4f}"])
    echo(align(header, table, left=3))
    for match in matches:
        if excerpt := clips.excerpt(match.id):
            echo(f"\n{match.id}: “{excerpt}”")
    if output is not None:
        echo(f"-> {output}")
    else:
        store = for_shell(matches[0].store)
        echo(f"next: obygaze stores search {store} --like {matches[0].id}")


@click.command("map")
@store_argument("store")
@output_option("The map: a page in .html, or a figure in .png, .svg or .pdf.")
@click.option(
    "--color",
    metavar="film|level|CONCEPT|COLUMN",
    help="What the colours show; levels, concepts and columns come from --manifest "
    "(default: the level if --manifest has labels, else the film).",
)
@film_option("Highlight one film; other films are grey.", one=True)
@page_options
@click.option(
    "--method",
    type=click.Choice(["pca", "umap"]),
    default="pca",
    help="Principal components, or UMAP if umap-learn is installed.",
)
@click.option("--array", default="native", help="The array to map.")
@figure_options
@overwrite_option
def map_(store: Path | str, output: Path, **options: Any) -> None:
    """Draw a store's clips in two dimensions.

    On the page, click a film, level or concept to highlight its clips, or click a clip to keep its
    details in view. With --report, the details link to the clip in the report.

    \b
    Examples:
      obygaze stores map stores/xclip-kinetics.zarr -o films.html
      obygaze stores map mobygaze/words.zarr --manifest mobygaze/minutes -o map.html
      obygaze stores map mobygaze/words.zarr --film "Pulp Fiction" -o pulp-fiction.pdf
      obygaze stores map stores/clip.zarr --manifest manifests/mine --color media -o files.html
      obygaze stores map stores/clip.zarr --manifest manifests/obygaze12 --color Look -o look.html
    """
    from obygaze_features.retrieval.clip_map import write_map
    from obygaze_features.store import open_store

    opened = open_store(store)
    clip_map = write_map(opened, output, **options)
    echo(f"{clip_map.title}. {clip_map.axes}\n-> {output}")
    _warn_of_synthetic([opened])


def _warn_of_synthetic(stores: Sequence[Store]) -> None:
    """Warn that similarities mean nothing if a store was made by an untrained backbone."""
    for store in stores:
        if synthetic := store.attributes["backbone"].get("config", {}).get("synthetic"):
            text = f"WARNING: these similarities mean nothing: {store.where} has {synthetic}"
            echo(text, fg="yellow", bold=True, err=True)
