"""``obygaze annotations figure``: each film's timelines, their projections and the merge."""

from __future__ import annotations

from pathlib import Path

import click

from obygaze_features.common.cli import folder_argument, overwrite_option
from obygaze_features.common.text import counted, unknown_name
from obygaze_features.errors import AnnotationError, UsageError

__all__ = ["figure"]


@click.command()
@folder_argument("timelines")
@folder_argument("manifest")
@click.option("--film", "films", multiple=True, help="Only this film; may be given again.")
@click.option(
    "--merged", default="merged", show_default=True, help="The label set that stands at the bottom."
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, help="The figures' folder."
)
@overwrite_option
def figure(
    timelines: Path,
    manifest: Path,
    films: tuple[str, ...],
    merged: str,
    output: Path,
    overwrite: bool,
) -> None:
    """Draw each film's timelines, what became of them on clips, and the merge.

    An SVG file a film, as the paper's figure 4: for each annotator the segments as they were cut,
    and below them the levels of the clips; then the merged levels. The higher the level, the
    taller the bar. Where the pointer rests, times and concepts are said.

    \b
    Examples:
      obygaze annotations figure timelines/mine manifests/mine -o figures
      obygaze annotations figure timelines/mine manifests/mine --film tt0108160 -o figures
    """
    from obygaze_features.annotations.figure import film_figure, films_drawn
    from obygaze_features.annotations.timelines import Timelines
    from obygaze_features.common.files import refuse_to_overwrite
    from obygaze_features.drawing.file import write_svg
    from obygaze_features.manifests.manifest import Manifest

    segments, clips = Timelines.load(timelines), Manifest.load(manifest)
    known = films_drawn(segments, clips)
    if strange := [film for film in films if film not in known]:
        raise UsageError(unknown_name("film", strange[0], known))
    if not known:
        raise AnnotationError(
            f"{manifest} has clips of none of the films of {timelines}; project the timelines "
            f"first (obygaze annotations project {timelines} --grid 60 -o MANIFEST)"
        )
    paths = {film: output / f"{film}.svg" for film in films or known}
    for path in paths.values():
        refuse_to_overwrite(path, overwrite=overwrite)
    drawn = {
        path: film_figure(segments, clips, film, merged=merged) for film, path in paths.items()
    }
    output.mkdir(parents=True, exist_ok=True)
    for path, one in drawn.items():
        write_svg(path, one, overwrite=overwrite)
    click.echo(f"{counted(len(paths), 'figure')}, one a film -> {output}")
    projected = set(segments.annotators) & set(clips.label_names)
    if merged not in clips.label_names and len(projected) > 1:
        click.echo(f"without a merge; make one with: obygaze annotations merge {manifest}")
