"""Plan an extraction: its options, its stores, and the blocks still to be computed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypedDict

from obygaze_features.backbones import Backbone
from obygaze_features.backbones.checkpoints import check_store_name
from obygaze_features.backbones.devices import describe_device
from obygaze_features.errors import UsageError, VideoError
from obygaze_features.items.films import select_rows
from obygaze_features.items.media import Located, locate
from obygaze_features.manifests import Manifest
from obygaze_features.store import Recipe, Store, StoreLike, open_store
from obygaze_features.store.format import BLOCK_ROWS, default_block_rows
from obygaze_features.store.rows import Rows
from obygaze_features.store.writer import is_in_part, require_resumable

_NUMBERS = (
    "limit",
    "frames",
    "audio_track",
    "batch",
    "workers",
    "stall_timeout",
)
"""The options that are numbers above 0."""


class OptionTypes(TypedDict, total=False):
    """The types of the options by name, for `extract`; `Options` explains them."""

    films: Collection[str] | None
    limit: int | None
    part: str | None
    retry_failed: bool
    preprocessing: str
    precision: str
    arrays: Sequence[str] | None
    sampling: str | None
    frames: int | None
    audio_track: int | None
    device: str | None
    batch: int | None
    workers: int | None
    stall_timeout: float
    ray: str | None
    reuse: Sequence[StoreLike] | StoreLike


@dataclass(frozen=True)
class Options:
    """The options of an extraction.

    Parameters
    ----------
    films
        Extract only items of these films, by id, title or pattern (``tt01*``). Default: all.
    limit
        Extract only the first `limit` items.
    part
        Extract only one part of the blocks; ``"2/4"`` is every fourth block, starting with the
        second. Runs that fill the same stores at the same time need different parts.
    retry_failed
        Retry items that failed in an earlier run.
    preprocessing
        ``standard`` to preprocess like the checkpoint's processor, or ``author`` to first squash
        frames to a square, like ObyGaze12's released code.
    precision
        ``float32``, ``tf32``, ``bfloat16`` or ``float16``: see docs/how-to/scale.md.
    arrays
        The arrays to store (default: all but ``tokens``). To store an array in one store only,
        prefix it with the store's name: ``vivit:cls``.
    sampling
        A frame rate, such as ``"2 fps"``, which replaces each backbone's own sampling, so longer
        clips get more frames; only for networks that see each frame alone.
    frames
        The number of frames, spread evenly over each clip, or with `sampling`, their maximum; only
        for networks that see each frame alone. For audio backbones, which take no `sampling`, the
        maximum number of windows of sound.
        Default: the backbone's own number; with `sampling`, and for audio, `MAX_FRAMES`.
    audio_track
        The number of the sound track to use, from 1 (default: FFmpeg's choice).
    device
        ``cpu``, ``cuda``, ``cuda:1`` or ``mps`` (default: a GPU if there is one).
    batch
        The number of items per forward pass, at most the 32 of a block of rows, so that a resumed
        run forms the same batches. It is halved when memory runs out.
    workers
        The number of processes that decode clips, or threads that read images (default: all cores
        but one, shared among the GPUs; at most 32).
    stall_timeout
        Give up decoding a file after this many seconds without progress.
    ray
        Compute on the Ray cluster with its head at ``HOST:PORT``, or ``auto``.
    reuse
        Older stores, or their addresses. The rows of items that have not changed since are copied,
        not computed.
    """

    films: Collection[str] | None = None
    limit: int | None = None
    part: str | None = None
    retry_failed: bool = False
    preprocessing: str = "standard"
    precision: str = "float32"
    arrays: Sequence[str] | None = None
    sampling: str | None = None
    frames: int | None = None
    audio_track: int | None = None
    device: str | None = None
    batch: int | None = None
    workers: int | None = None
    stall_timeout: float = 60.0
    ray: str | None = None
    reuse: Sequence[StoreLike] | StoreLike = ()

    def __post_init__(self) -> None:
        """Raise `UsageError` if a number is out of range."""
        for name in _NUMBERS:
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UsageError(f"{name} must be above 0 (got {value!r})")

    def select(self, manifest: Manifest) -> Rows:
        """Return the rows of the selected films, up to the limit, done or not."""
        return select_rows(manifest.items, films=self.films)[: self.limit]


@dataclass(frozen=True)
class Job:
    """The work of an extraction: the rows that its stores lack.

    Parameters
    ----------
    manifest, media, options
        The manifest, the folder of its media files, and the options.
    located
        The files of the selected items.
    paths
        The path of each store, existing or not, by name.
    stores
        The existing stores, by name; they have the same items as the manifest.
    block_rows
        Rows per block: the most in any existing store, or else the default.
    rows
        The selected rows, done or not.
    """

    manifest: Manifest
    media: Path | None
    located: Located
    options: Options
    paths: Mapping[str, Path]
    stores: Mapping[str, Store]
    block_rows: int
    rows: Rows

    @cached_property
    def missing(self) -> dict[str, Rows]:
        """The selected rows that each store lacks, by store name."""
        missing = dict.fromkeys(self.paths, self.rows)
        for name, store in self.stores.items():
            missing[name] = store.missing_rows(self.rows, retry_failed=self.options.retry_failed)
        return missing

    @cached_property
    def to_do(self) -> dict[int, list[str]]:
        """The rows that any store lacks, in order, and the names of the stores that lack each."""
        names: dict[int, list[str]] = defaultdict(list)
        for name, rows in self.missing.items():
            for row in rows.tolist():
                names[row].append(name)
        return dict(sorted(names.items()))

    def last_rows(self, size: int) -> set[int]:
        """Return the last row to do in each group of `size` rows."""
        return set({row // size: row for row in self.to_do}.values())


def plan_job(
    manifest: Manifest,
    media: Path | None,
    backbones: Sequence[Backbone],
    output: Path,
    options: Options,
) -> Job:
    """Work out the rows that the stores in a folder lack, without creating anything.

    Each backbone fills the store of the same name. Raises `StoreError` if a store cannot be
    continued.
    """
    names = [backbone.name for backbone in backbones]
    for name in names:
        check_store_name(name)
        if names.count(name) > 1:
            raise UsageError(f"two backbones are called {name!r}; rename one with NAME=PATH")
    paths = {backbone.name: output / f"{backbone.name}.zarr" for backbone in backbones}
    stores = {name: open_store(path) for name, path in paths.items() if path.exists()}
    sizes = {store.block_rows for store in stores.values()}
    block_rows = _choose_block_rows(sizes, backbones, len(manifest))
    if len(sizes) > 1 and (options.part or options.ray):
        raise UsageError(
            f"{output}: stores with blocks of {min(sizes)} and of {block_rows} rows cannot share "
            "parts; extract them in separate runs"
        )
    rows = options.select(manifest)
    if options.part:
        rows = rows[is_in_part(rows // block_rows, options.part)]
    located = Located()
    if media:
        located = locate_media(manifest, rows, media)
    for backbone in backbones:
        if store := stores.get(backbone.name):
            require_resumable(store, manifest.items, recipe_of(backbone))
    return Job(manifest, media, located, options, paths, stores, block_rows, rows)


def _choose_block_rows(sizes: Collection[int], backbones: Sequence[Backbone], items: int) -> int:
    """Return the number of rows per block: the most in any existing store, or else the default.

    Tokens are large, so blocks with them stay small: a block waits in memory until it is complete.
    """
    if sizes:
        return max(sizes)
    names = {spec.name for backbone in backbones for spec in backbone.arrays}
    if "tokens" in names:
        return BLOCK_ROWS
    return default_block_rows(items)


def check_items(manifest: Manifest, kinds: Sequence[str] = ("clip",)) -> None:
    """Raise `UsageError` if a manifest has items that are not of these `kinds`."""
    for item in manifest:
        if item.kind not in kinds:
            plural = " and ".join(f"{kind}s" for kind in kinds)
            raise UsageError(f"{item.id} is of kind {item.kind!r}; only {plural} are allowed")


def locate_media(manifest: Manifest, rows: Rows, media: Path) -> Located:
    """Locate the media files of rows; raise `VideoError` if none of them has one.

    This keeps a run with a mistyped folder from recording every clip as missing.
    """
    items = [manifest.items[row] for row in rows.tolist()]
    located = locate(items, media)
    if located.missing and not located.found and not located.ambiguous:
        raise VideoError(
            f"{media} has no files of {manifest.name} (missing: {len(located.missing)}): "
            f"{located.hint}. Check the folder"
        )
    return located


def recipe_of(backbone: Backbone) -> Recipe:
    """Return the recipe for a backbone's store, with what its readers do to items."""
    preprocessing: dict[str, Any] = {}
    arrays = [*backbone.arrays]
    for reader in backbone.readers.values():
        preprocessing |= reader.recipe()
        arrays += reader.sampled
    about = dict(backbone.about)
    if backbone.device.startswith("cuda"):
        about["device"] = describe_device(backbone.device)
    return Recipe(
        name=backbone.name,
        backbone=about,
        preprocessing=preprocessing,
        precision=backbone.precision,
        arrays=tuple(arrays),
    )
