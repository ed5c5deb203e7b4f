"""The blocks that are on their way through a cluster: what of each is to be read and computed.

At most two for each process that computes: memory is bounded.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from obygaze_features.extraction.clips import Clip
from obygaze_features.extraction.engines.ray_actors import Computed
from obygaze_features.extraction.engines.ray_pool import TRIES, Reference
from obygaze_features.extraction.plan import Errand
from obygaze_features.manifests import Items
from obygaze_features.store import Done, Failed

__all__ = ["BLOCKS", "Block", "Blocks"]

BLOCKS = 2
"""Blocks on their way for each process that computes: one at work, one being read."""


@dataclass(eq=False)
class Block:
    """A block on its way: what was read of it, and references to the pixels."""

    errand: Errand
    clips: dict[int, Clip | Failed] = field(default_factory=dict)
    pixels: dict[int, Reference] = field(default_factory=dict)

    @property
    def is_read(self) -> bool:
        """Whether all of its clips were read, or cannot be."""
        return len(self.clips) == len(self.errand.rows)

    def sound(self) -> dict[str, list[int]]:
        """For each store the wanted rows that could be read."""
        found = {
            name: [row for row in rows if isinstance(self.clips[row], Clip)]
            for name, rows in self.errand.wanted.items()
        }
        return {name: rows for name, rows in found.items() if rows}

    def wanted(self) -> dict[str, list[Reference]]:
        """For each store the pixels to compute, in order."""
        return {name: [self.pixels[row] for row in rows] for name, rows in self.sound().items()}

    def outcomes(self, computed: Computed) -> dict[str, dict[int, Done | Failed]]:
        """For each store what came of each of its rows."""
        found: dict[str, dict[int, Done | Failed]] = {name: {} for name in self.errand.wanted}
        values = {name: iter(rows) for name, rows in computed.rows.items()}
        for row in self.errand.rows:
            clip = self.clips[row]
            for name in self.errand.names(row):
                found[name][row] = (
                    clip
                    if isinstance(clip, Failed)
                    else Done({**next(values[name]), **clip.sampled[name]}, clip.source)
                )
        return found


class Blocks:
    """All that are on their way, and what was given up.

    Parameters
    ----------
    items
        The manifest's.
    most
        How many there may be.

    Attributes
    ----------
    to_read
        Clips that nobody reads yet, by block and row.
    to_compute
        Blocks that are read and that nobody computes yet.
    given_up
        What was lost too often, in words.
    """

    def __init__(self, items: Items, most: int) -> None:
        self._items, self._most = items, most
        self._all: list[Block] = []
        self.to_read: deque[tuple[Block, int]] = deque()
        self.to_compute: deque[Block] = deque()
        self.given_up: list[str] = []
        self._losses: Counter[tuple[Block, int | None]] = Counter()

    def __bool__(self) -> bool:
        return bool(self._all)

    def __contains__(self, block: Block) -> bool:
        return block in self._all

    @property
    def has_room(self) -> bool:
        """Whether there may be one more."""
        return len(self._all) < self._most

    def add(self, errand: Errand) -> None:
        """One more, from its first clip on."""
        block = Block(errand)
        self._all.append(block)
        self.to_read.extend((block, row) for row in errand.rows)

    def remove(self, block: Block) -> None:
        """One less, that is done or given up."""
        self._all.remove(block)
        self.to_read = deque(one for one in self.to_read if one[0] is not block)

    def read_again(self, block: Block, row: int, why: str) -> None:
        """A process was lost as it read this clip."""
        if block in self and not self._gives_up(block, row, why):
            self.to_read.appendleft((block, row))

    def compute_again(self, block: Block, why: str) -> None:
        """From the start: the frames may have been on a machine that is lost."""
        if not self._gives_up(block, None, why):
            block.clips, block.pixels = {}, {}
            self.to_read.extendleft((block, row) for row in reversed(block.errand.rows))

    def _gives_up(self, block: Block, row: int | None, why: str) -> bool:
        """Count a loss; after some the block is left to do, its claim kept until the end."""
        self._losses[block, row] += 1
        if self._losses[block, row] < TRIES:
            return False
        rows, items = block.errand.rows, self._items
        what = (
            f"the clips {items[rows[0]].id} to {items[rows[-1]].id}"
            if row is None
            else items[row].id
        )
        self.given_up.append(f"{TRIES} processes were lost over {what} ({why})")
        self.remove(block)
        return True
