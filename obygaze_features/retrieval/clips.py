"""Information about clips for search and map pages, such as film, time and level."""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from urllib.parse import quote

import numpy as np

from obygaze_features.common.figures import level_colour_names
from obygaze_features.common.text import format_time
from obygaze_features.errors import UsageError
from obygaze_features.items.films import distinct_titles, film_titles
from obygaze_features.items.items import media_stem
from obygaze_features.manifests import Item, Manifest
from obygaze_features.page.html import Html, draw_lanes, html
from obygaze_features.store import Store

EXCERPT_CHARACTERS = 240
"""The maximum length of a clip's text in search results."""


@dataclass(frozen=True, eq=False)
class Clips:
    """Information about clips; film and time come from the first of `sources` that has the clip.

    `levels` has the name and the colour of each level. `link` is the address of clips in a report,
    without the id at its end, or "".
    """

    sources: Sequence[Manifest]
    titles: Mapping[str, str]
    levels: Mapping[str, tuple[str, str]]
    level_of: Mapping[str, str]
    concepts_of: Mapping[str, Sequence[str]]
    link: str = ""

    def item(self, clip: str) -> Item:
        """Return a clip's item, or an empty item if no source has the clip."""
        return next((source[clip] for source in self.sources if clip in source), Item(clip))

    def film(self, clip: str) -> str:
        """Return the title of a clip's film, with the year if known."""
        film = self.item(clip).film
        return self.titles.get(film, film)

    def span(self, clip: str) -> list[str]:
        """Return a clip's start and end in its film as text, empty if unknown."""
        times = self.item(clip).start, self.item(clip).end
        return ["" if time is None else format_time(round(time)) for time in times]

    def name(self, clip: str) -> str:
        """Return a name for a clip: its film (or file) with its start, scene number or id."""
        item, number = self.item(clip), re.search(r"\d+$", clip)
        scene = f"scene {int(number[0])}" if item.film and number else clip
        names = self.film(clip) or media_stem(item.media), self.span(clip)[0] or scene
        return ", ".join(dict.fromkeys(filter(None, names)))

    def level(self, clip: str) -> tuple[str, str]:
        """Return the name and the colour of a clip's level, empty if the clip has no label."""
        return self.levels.get(self.level_of.get(clip, ""), ("", ""))

    def excerpt(self, clip: str) -> str:
        """Return the beginning of a clip's text, such as its dialogue, or "" if it has none."""
        return textwrap.shorten(self.item(clip).text, EXCERPT_CHARACTERS, placeholder=" …")

    def words(self, clip: str) -> str:
        """Return a clip's name, level, concepts and id, one per line."""
        concepts = ", ".join(self.concepts_of.get(clip, ()))
        return "\n".join(filter(None, (self.name(clip), self.level(clip)[0], concepts, clip)))

    def strip(self, clip: str, moment: float | None = None) -> Html:
        """Draw the clip's film in the colours of its levels, with a mark at the clip or moment."""
        source = next((source for source in self.sources if clip in source), None)
        item = self.item(clip)
        if source is None or not item.film:
            return Html("")
        # If a film has several files, times start at 0 in each.
        files = source.items.media if item.start is not None else [item.media] * len(source)
        files_of = enumerate(zip(source.items.films, files, strict=True))
        rows = [row for row, file in files_of if file == (item.film, item.media)]
        items = source.items.take(rows)
        timed = not np.isnan(items.ends).any()
        ends = items.ends if timed else np.arange(1.0, len(rows) + 1)
        starts, end = items.starts if timed else ends - 1, float(ends.max())
        spans = dict(zip(items.ids, zip(starts.tolist(), ends.tolist(), strict=True), strict=True))
        lane = draw_lanes(spans, [{film_clip: self.level(film_clip)[1] for film_clip in spans}])
        middle = moment if timed and moment is not None else sum(spans[clip]) / 2
        first, last = map(format_time, (0, round(end))) if timed else ("", "")
        here = f"{100 * middle / end:.2f}"
        return fill("strip", name=self.name(clip), lane=lane, here=here, first=first, last=last)


def describe_clips(
    stores: Sequence[Store],
    manifest: Manifest | Path | None = None,
    labels: str | None = None,
    link: str = "",
) -> Clips:
    """Collect the information that stores and a manifest have about clips.

    `labels` is a label set of the manifest (default: the manifest's default).
    """
    if manifest is None and labels is not None:
        raise UsageError(f"the label set {labels} needs its manifest: --manifest MANIFEST")
    manifest = Manifest.load(manifest) if isinstance(manifest, Path) else manifest
    sources = [*filter(None, [manifest]), *(Manifest("", store.items) for store in stores)]
    titles = {
        f: title for source in sources[::-1] for f, title in film_titles(source.items).items()
    }
    films = {film for source in sources for film in source.items.films}
    titles = distinct_titles({film: titles.get(film, film) for film in films})
    if manifest is None or not manifest.label_names:
        return Clips(sources, titles, {}, {}, {}, link)
    label_set, names = manifest.labels(labels), manifest.label_scheme(labels).name_of
    colours = level_colour_names(list(names))
    levels = {code: (names[code], c) for code, c in zip(names, colours, strict=True)}
    return Clips(sources, titles, levels, label_set.level_of, label_set.concepts_of, link)


def link_to(report: Path | str | None, output: Path | None) -> str:
    """Return the link from the page `output` to clips in a report, without the id at its end."""
    if report is None:
        return ""
    if output is None or output.suffix != ".html":
        raise UsageError("only a page can link to a report; pass -o PAGE.html")
    if not Path(report).is_file():
        raise UsageError(
            f"{report} is not a file; make a page with: obygaze report RUN -o PAGE.html"
        )
    try:
        url = quote(Path(os.path.relpath(report, output.parent)).as_posix())
    except ValueError:  # on another drive on Windows
        url = Path(report).absolute().as_uri()
    return url + "#clip="


def fill(template: str, /, **parts: object) -> Html:
    """Fill in a template of search and map pages."""
    return html(page_part(f"{template}.html"), **parts)


@cache
def page_part(name: str) -> str:
    """Return the text of a template, script or style sheet of search and map pages."""
    return (files("obygaze_features.retrieval") / name).read_text(encoding="utf-8")
