"""Maps of a manifest's images, one by one and as the mean of each group, in a folder."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from obygaze_features.backbones.preprocess import resize_and_crop
from obygaze_features.common.files import new_folder, to_json, write_bytes, write_text
from obygaze_features.common.progress import meter
from obygaze_features.common.tables import format_table
from obygaze_features.common.text import counted, shorten, unknown_name
from obygaze_features.errors import UsageError, VideoError
from obygaze_features.extraction.plan import check_items
from obygaze_features.extraction.readers import portable_reason, read_picture
from obygaze_features.manifests import Item, Manifest
from obygaze_features.manifests.importers.prompts import with_article
from obygaze_features.manifests.items import safe_id
from obygaze_features.manifests.media import IMAGE_SUFFIXES, MediaFolder
from obygaze_features.saliency.grad_cam import Seer, grad_cam
from obygaze_features.saliency.heat import heat, overlay, png, stretch

__all__ = ["RECORD", "Saliency", "write_saliency"]

RECORD = "saliency.json"
"""What a folder of maps was made with; also how one is told from other folders."""
AT_ONCE = 16
"""Images of a batch."""
_FIELD = re.compile(r"\{([^{}]*)\}")
_EVERYTHING = "all"
_NOTHING = np.empty((0, 0, 3), np.uint8)


@dataclass(frozen=True)
class Saliency:
    """What came of it: how many images each group has, why some have no map, which texts are
    longer than what is read of them, and which images are in no group.
    """

    groups: dict[str, int]
    failed: dict[str, str] = field(default_factory=dict)
    cut: list[str] = field(default_factory=list)
    ungrouped: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Seen:
    """An image as the network saw it, how near its text it is, and where."""

    row: int
    picture: NDArray[np.uint8]
    similarity: float
    map: NDArray[np.float32]

    @property
    def scaled(self) -> NDArray[np.float32]:
        """The map with 1 as its highest value, if it has any."""
        return self.map / (self.map.max() or np.float32(1))


@dataclass
class _Group:
    """The sums of what is averaged."""

    count: int
    maps: NDArray[np.float64]
    picture: NDArray[np.float64]


def write_saliency(
    manifest: Manifest,
    images: Path,
    seer: Seer,
    text: str,
    folder: Path,
    *,
    by: str | None = None,
    each: bool = True,
    overwrite: bool = False,
) -> Saliency:
    """Write the maps of a manifest's images for a text.

    Parameters
    ----------
    manifest, images
        The images, and where their files are looked for.
    seer
        From `load_seer`.
    text
        What the images are compared with; ``{column}`` stands for a cell of the image's own.
    folder
        Gets the maps as numbers, and as pictures.
    by
        The manifest's column of groups that are averaged; by default all images are one group.
    each
        Draw each image, too, and not only the groups.
    overwrite
        Replace an earlier folder of maps.
    """
    check_items(manifest, ("image",))
    items = list(manifest.items)
    columns = {"film": manifest.items.films, **manifest.items.extra}
    texts = _texts(text, columns, len(items))
    if by is not None and by not in columns:
        raise UsageError(f"--by: {unknown_name('column', by, columns)}")
    groups = columns[by] if by is not None else [_EVERYTHING] * len(items)
    if "" in groups and not any(groups):
        raise UsageError(f"--by {by}: no image has something in that column")
    cut = _too_long(seer, texts)
    media = MediaFolder(images.resolve(), IMAGE_SUFFIXES)
    seen: list[_Seen] = []
    sums: dict[str, _Group] = {}
    failed: dict[str, str] = {}
    with (
        warnings.catch_warnings(),
        new_folder(folder, overwrite=overwrite, marker=RECORD, allow_missing=True) as new,
    ):
        # What is odd about a file that can be read is not to come between.
        warnings.filterwarnings("ignore", module=r"PIL\.")
        for one in _look(seer, media, items, texts, failed):
            seen.append(replace(one, picture=_NOTHING))
            if groups[one.row]:
                _add(sums, groups[one.row], one)
            if each:
                shown = overlay(one.picture, stretch(one.scaled, *one.picture.shape[:2]))
                drawn = png(shown, items[one.row].id, float(one.map.max()), over=True)
                write_bytes(new / "images" / f"{items[one.row].id}.png", drawn)
        if not seen:
            why = next(iter(failed.values()), "the manifest has none")
            raise VideoError(f"not one of {len(items)} images has a map: {why}")
        if not sums:
            raise VideoError(f"not one of the images with a map has something in {by}")
        ungrouped = [items[one.row].id for one in seen if not groups[one.row]]
        np.save(new / "maps.npy", np.stack([one.map for one in seen]), allow_pickle=False)
        cells: dict[str, Sequence[str]] = {
            "id": [items[one.row].id for one in seen],
            "group": [groups[one.row] for one in seen],
            "text": [texts[one.row] for one in seen],
            "similarity": [repr(one.similarity) for one in seen],
            "peak": [repr(float(one.map.max())) for one in seen],
        }
        write_text(new / "images.csv", format_table(cells))
        about = {
            "backbone": dict(seer.about),
            "preprocessing": seer.preprocessing.attributes(),
            "text": text,
            "by": by,
            "grid": seer.grid,
            **_write_groups(new, sums),
            "failed": failed,
            "cut": cut,
            "ungrouped": ungrouped,
        }
        write_text(new / RECORD, to_json(about))
    return Saliency({name: one.count for name, one in sums.items()}, failed, cut, ungrouped)


def _texts(text: str, columns: Mapping[str, Sequence[str]], count: int) -> list[str]:
    """Each image's text: its cells in place of what stands in braces."""
    if not text.strip():
        raise UsageError("--text is empty; say what the images are to be compared with")
    fields = list(_FIELD.finditer(text))
    if (left := _FIELD.sub("", text)) and not {"{", "}"}.isdisjoint(left):
        raise UsageError(
            f"--text {shorten(text)}: a brace without its other; {{COLUMN}} is meant, with both"
        )
    for name in (one[1] for one in fields):
        if name not in columns:
            raise UsageError(f"--text {shorten(text)}: {unknown_name('column', name, columns)}")
        if "" in columns[name]:
            raise UsageError(f"--text {shorten(text)}: not every image has something in {name!r}")
    texts = [text] * count
    for one in reversed(fields):  # so that places further to the front stay where they are
        start, end = one.span()
        texts = [
            with_article(f"{said[:start]}{{}}{said[end:]}", cell)
            for said, cell in zip(texts, columns[one[1]], strict=True)
        ]
    return texts


def _too_long(seer: Seer, texts: Sequence[str]) -> list[str]:
    """The texts of which the network reads only the beginning."""
    tokens, different = seer.network.tokens, list(dict.fromkeys(texts))
    counts = tokens.count(different)
    return [one for one, count in zip(different, counts, strict=True) if count > tokens.longest]


def _read(media: MediaFolder, item: Item, seer: Seer) -> Tensor | str:
    """A picture as the network is to see it, in bytes; or why there is none."""
    try:
        picture = torch.from_numpy(read_picture(media.find(item)))
    except VideoError as problem:
        return portable_reason(str(problem), item, media.root)
    return resize_and_crop(picture[None], seer.preprocessing)[0]


def _look(
    seer: Seer,
    media: MediaFolder,
    items: Sequence[Item],
    texts: Sequence[str],
    failed: dict[str, str],
) -> Iterator[_Seen]:
    """Look at the images in turn; those that cannot be read are put into `failed`."""
    embedded = {one: seer.read([one])[0] for one in dict.fromkeys(texts)}
    with meter(len(items), "Saliency", unit="image") as advance, ThreadPoolExecutor() as pool:
        for start in range(0, len(items), AT_ONCE):
            some = range(start, min(start + AT_ONCE, len(items)))
            read = list(pool.map(lambda row: _read(media, items[row], seer), some))
            there = {}
            for row, picture in zip(some, read, strict=True):
                if isinstance(picture, str):
                    failed[items[row].id] = picture
                else:
                    there[row] = picture
            if there:
                pictures = torch.stack(list(there.values()))
                meant = torch.stack([embedded[texts[row]] for row in there])
                near, maps = grad_cam(seer, pictures, meant)
                shown = pictures.permute(0, 2, 3, 1).numpy()
                yield from map(_Seen, there, shown, near.tolist(), maps.numpy())
            advance(len(some), "")


def _add(sums: dict[str, _Group], name: str, one: _Seen) -> None:
    group = sums.setdefault(name, _Group(0, np.zeros(one.map.shape), np.zeros(one.picture.shape)))
    group.count += 1
    group.maps += one.scaled
    group.picture += one.picture


def _write_groups(folder: Path, sums: Mapping[str, _Group]) -> dict[str, Any]:
    """Write each group's mean map, all on one scale; say what was drawn where."""
    means = {name: one.maps / one.count for name, one in sums.items()}
    highest = max(float(one.max()) for one in means.values()) or 1.0
    cells: list[tuple[str, ...]] = []
    drawn: dict[str, Any] = {}
    taken: set[str] = set()
    for name, mean in means.items():
        stem = safe_id(name)
        # Names may differ by marks, or by case only, or be another's with "-overlay".
        while taken & (both := {stem.lower(), f"{stem.lower()}-overlay"}):
            stem += "-other"
        taken |= both
        count = sums[name].count
        picture = np.round(sums[name].picture / count).astype(np.uint8)
        shown = stretch((mean / highest).astype(np.float32), *picture.shape[:2])
        title = f"{name or 'no group'}, {counted(count, 'image')}"
        for end, over, of in (
            ("", False, heat(shown)),
            ("-overlay", True, overlay(picture, shown)),
        ):
            file = png(of, title, highest, over=over)
            write_bytes(folder / "groups" / f"{stem}{end}.png", file)
        cells += [
            (name, str(count), str(row), str(column), repr(float(value)))
            for (row, column), value in np.ndenumerate(mean)
        ]
        drawn[name] = {"images": count, "pictures": stem}
    names = ("group", "images", "row", "column", "value")
    write_text(
        folder / "groups.csv",
        format_table(dict(zip(names, zip(*cells, strict=True), strict=True))),
    )
    return {"groups": drawn, "brightest_at": highest}
