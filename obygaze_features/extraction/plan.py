"""The stores that an extraction fills, and the blocks that they lack."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from obygaze_features.backbones import Backbone
from obygaze_features.errors import BrokenBackbone, OutputExists, UsageError, VideoError
from obygaze_features.extraction.forward import embed_probe
from obygaze_features.manifests import Manifest
from obygaze_features.manifests.media import locate
from obygaze_features.store import ArraySpec, Recipe, StoreWriter, open_store
from obygaze_features.store.writer import open_to_resume

Rows = NDArray[np.intp]


@dataclass(frozen=True)
class ExtractionTarget:
    """A backbone and the store that it fills."""

    backbone: Backbone
    writer: StoreWriter

    @property
    def name(self) -> str:
        """The store's name."""
        return self.backbone.name

    @property
    def path(self) -> Path:
        """The store's folder."""
        return self.writer.store.path


@dataclass(frozen=True)
class BlockTask:
    """A block, and the rows of it that each store lacks, by the store's name."""

    block: int
    missing: dict[str, list[int]]

    @cached_property
    def rows(self) -> list[int]:
        """Every row that any store lacks, in order."""
        return sorted(set().union(*self.missing.values()))

    def names(self, row: int) -> list[str]:
        """The stores that lack a row."""
        return [name for name, rows in self.missing.items() if row in rows]


def check_items(manifest: Manifest, kinds: Sequence[str] = ("clip",)) -> None:
    """Refuse a manifest with items of other kinds, before anything is computed."""
    for item in manifest:
        if item.kind not in kinds:
            plural = " and ".join(f"{kind}s" for kind in kinds)
            raise UsageError(f"{item.id} is of the kind {item.kind!r}; this takes {plural} only")


def check_media(manifest: Manifest, rows: Rows, media: Path) -> None:
    """Raise `VideoError` if not a single one of the rows' files is there.

    In a mistyped folder every clip would otherwise be recorded as missing.
    """
    items = [manifest.items[row] for row in rows.tolist()]
    located = locate(items, media)
    if located.missing and not located.found and not located.ambiguous:
        noun = "image" if items[0].kind != "clip" else "clip"
        count = len(located.missing)
        raise VideoError(
            f"{media} has none of the {count} {noun}s of {manifest.name}: {located.hint}"
        )


def recipe_of(backbone: Backbone) -> Recipe:
    """How a store's rows are made, including the sampling of frames or the cutting of texts."""
    if not backbone.for_clips:
        upright = {"orientation": "upright, by the image's EXIF data"}
        pictures = backbone.preprocessing.attributes() | upright if backbone.encode_images else {}
        reads_texts = backbone.text_tower or not pictures
        texts = {"texts": backbone.tokenizer.attributes()} if reads_texts else {}
        return Recipe(
            name=backbone.name,
            backbone=backbone.about,
            preprocessing={**pictures, **texts},
            precision=backbone.precision,
            arrays=backbone.arrays,
        )
    sampling = backbone.sampling
    count, padded = (sampling.frames,), sampling.rate is not None
    number, time = "number in its file of each frame used", "when it is shown there, in seconds"
    return Recipe(
        name=backbone.name,
        backbone=backbone.about,
        preprocessing={"sampling": sampling.words, **backbone.preprocessing.attributes()},
        precision=backbone.precision,
        arrays=(
            *backbone.arrays,
            ArraySpec("frame_index", count, "int32", number, padded),
            ArraySpec("frame_time", count, "float64", time, padded),
        ),
    )


def store_paths(backbones: Sequence[Backbone], output: Path) -> dict[str, Path]:
    """The path of each backbone's store, by name: ``output/NAME.zarr``."""
    names = [backbone.name for backbone in backbones]
    if duplicates := [name for name in names if names.count(name) > 1]:
        raise UsageError(
            f"two backbones are called {duplicates[0]!r}; give them names with NAME=PATH"
        )
    return {name: output / f"{name}.zarr" for name in names}


def open_targets(
    manifest: Manifest,
    backbones: Sequence[Backbone],
    output: Path,
    leave_out: Callable[[str, BrokenBackbone], None],
) -> list[ExtractionTarget]:
    """Create each backbone's store, or open it to resume; broken ones are left out."""
    paths = store_paths(backbones, output)
    for backbone in backbones:
        # No store is created before all existing ones are known to fit.
        if paths[backbone.name].exists():
            open_to_resume(paths[backbone.name], manifest, recipe_of(backbone))
    targets = []
    for backbone in backbones:
        path, recipe = paths[backbone.name], recipe_of(backbone)
        if not path.exists():
            # Of several runs that start together, one creates the store and the others resume it.
            try:
                probe = embed_probe(backbone)
            except BrokenBackbone as problem:
                leave_out(backbone.name, problem)
                continue
            with contextlib.suppress(OutputExists):
                StoreWriter.create(path, manifest, recipe, probe=probe)
        targets.append(ExtractionTarget(backbone, StoreWriter.resume(path, manifest, recipe)))
    return targets


def plan_blocks(
    targets: Iterable[ExtractionTarget], rows: Rows, *, retry_failed: bool
) -> list[BlockTask]:
    """The blocks of which any store lacks rows, in order."""
    lacking: dict[int, dict[str, list[int]]] = {}
    for target in targets:
        store = open_store(target.path)  # the writer's own may be in use by its thread
        for row in store.missing_rows(rows, retry_failed=retry_failed).tolist():
            missing = lacking.setdefault(row // store.block_rows, {})
            missing.setdefault(target.name, []).append(row)
    return [BlockTask(block, lacking[block]) for block in sorted(lacking)]
