"""What is to be done: which stores, and which of their blocks are missing."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from obygaze_features.backbones import Backbone
from obygaze_features.errors import OutputExists, StoreError, UsageError
from obygaze_features.extraction.probe import probe_of
from obygaze_features.manifests import Manifest
from obygaze_features.store import ArraySpec, Recipe, Status, StoreWriter, open_store
from obygaze_features.store.claims import Claims
from obygaze_features.store.format import CLAIMS

__all__ = [
    "Lane",
    "blocks_to_do",
    "check_items",
    "claiming",
    "open_lanes",
    "recipe_of",
    "rows_to_retry",
]


@dataclass(frozen=True)
class Lane:
    """A backbone and the store that it fills."""

    backbone: Backbone
    writer: StoreWriter


def check_items(manifest: Manifest) -> None:
    """Refuse, before anything is computed, a manifest that holds more than whole clips."""
    for item in manifest:
        if item.kind != "clip":
            raise UsageError(f"{item.id} is of the kind {item.kind!r}; only clips can be extracted")
        if item.start is not None:
            raise UsageError(f"{item.id} is a span of a longer film; cut it into a file of its own")


def recipe_of(backbone: Backbone) -> Recipe:
    """What a backbone's store is made with, the sampling of frames included."""
    count = (backbone.sampling.frames,)
    return Recipe(
        name=backbone.name,
        backbone=backbone.about,
        preprocessing={
            "sampling": backbone.sampling.words,
            **backbone.preprocessing.attributes(),
        },
        precision=backbone.precision,
        arrays=(
            *backbone.arrays,
            ArraySpec("frame_index", count, "int32", "number of each frame that was used"),
            ArraySpec("frame_time", count, "float64", "when that frame is shown, in seconds"),
        ),
    )


def open_lanes(manifest: Manifest, backbones: Sequence[Backbone], output: Path) -> list[Lane]:
    """Each backbone's store ``output/NAME.zarr``, made or gone on with."""
    names = [backbone.name for backbone in backbones]
    if twice := [name for name in names if names.count(name) > 1]:
        raise UsageError(f"two backbones are called {twice[0]!r}; give them names with NAME=PATH")
    lanes = []
    for backbone in backbones:
        path, recipe = output / f"{backbone.name}.zarr", recipe_of(backbone)
        if not path.exists():
            # Of several that start at once, one makes the store, and the others go on with it.
            with contextlib.suppress(OutputExists):
                StoreWriter.create(path, manifest, recipe, probe=probe_of(backbone))
        lanes.append(Lane(backbone, StoreWriter.resume(path, manifest, recipe)))
    return lanes


Claimed = Callable[[int, Sequence[Lane]], contextlib.AbstractContextManager[bool]]


@contextlib.contextmanager
def claiming(lanes: Sequence[Lane]) -> Iterator[Claimed]:
    """Claims on blocks, given back at the end; a block is claimed in every store or in none."""
    with contextlib.ExitStack() as stack:
        claims = {}
        # In one order for everybody, so that two that share stores cannot wait for each other.
        for lane in sorted(lanes, key=lambda lane: lane.writer.store.path):
            claims[lane.backbone.name] = Claims(lane.writer.store.path / CLAIMS)
            stack.enter_context(claims[lane.backbone.name].heartbeat())

        @contextlib.contextmanager
        def claimed(block: int, wanted: Sequence[Lane]) -> Iterator[bool]:
            names = {lane.backbone.name for lane in wanted}
            taken: list[Claims] = []
            try:
                for name, mine in claims.items():
                    if name in names and mine.take(block):
                        taken.append(mine)
                yield len(taken) == len(names)
            finally:
                for mine in taken:
                    mine.release(block)

        yield claimed


def blocks_to_do(lanes: Sequence[Lane], part: str | None = None) -> dict[int, list[Lane]]:
    """The blocks that any of the stores lacks, in order, and which of the stores."""
    missing = [set(lane.writer.missing_blocks(part)) for lane in lanes]
    return {
        block: [lane for lane, lacks in zip(lanes, missing, strict=True) if block in lacks]
        for block in sorted(set().union(*missing))
    }


def rows_to_retry(lane: Lane) -> dict[int, list[int]]:
    """The rows that failed, by block: those of a store that are worth another try."""
    store = open_store(lane.writer.store.path)
    if store.is_final and store.failures:
        raise StoreError(
            f"{store.path} is finalised, and read-only; to try its failed rows again, open it "
            f"with: obygaze stores repair {store.path} --reopen"
        )
    rows: dict[int, list[int]] = {}
    for row in (store.status > Status.DONE).nonzero()[0].tolist():
        rows.setdefault(row // store.block_rows, []).append(row)
    return rows
