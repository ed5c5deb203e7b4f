"""The processes of one kind on a Ray cluster: started, replaced where they are lost, sent away."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

__all__ = ["TRIES", "Actor", "Pool", "Reference"]

TRIES = 3
"""Processes that may be lost over the same piece of work, or one after another as they start."""

Reference = Any
"""Ray's, to something that may still be computed."""
Actor = Any
"""Ray's handle on a process."""


class Pool:
    """The processes of one kind.

    Parameters
    ----------
    ray
        The package.
    start
        Starts one, and gives the reference that tells when it is ready.
    count
        How many there should be.

    Attributes
    ----------
    idle
        Those that are ready and have no work.
    waiting
        Those that are not ready yet, perhaps for want of room, by their reference.
    ready
        How many are ready.
    """

    def __init__(
        self, ray: ModuleType, start: Callable[[], tuple[Actor, Reference]], count: int
    ) -> None:
        self._ray, self._start, self._count = ray, start, count
        self.idle: list[Actor] = []
        self.waiting: dict[Reference, Actor] = {}
        self.ready = 0
        self._stillborn = 0

    def fill(self) -> bool:
        """Start those that lack; False where there are none left, as all are lost on starting."""
        while self.ready + len(self.waiting) < self._count and self._stillborn < TRIES:
            actor, reference = self._start()
            self.waiting[reference] = actor
        return bool(self.ready or self.waiting)

    def begun(self, reference: Reference) -> None:
        """One is ready."""
        self.idle.append(self.waiting.pop(reference))
        self.ready += 1
        self._stillborn = 0

    def lost(self, actor: Actor) -> None:
        """One was lost over its work, or cannot be trusted any more."""
        self._ray.kill(actor)
        self.ready -= 1

    def lost_on_start(self, reference: Reference) -> None:
        """One was lost before it was ready."""
        self._ray.kill(self.waiting.pop(reference))
        self._stillborn += 1

    def step_back(self) -> None:
        """Let those that wait for room wait behind others that are started now."""
        if self.ready:
            for actor in self.waiting.values():
                self._ray.kill(actor)
            self.waiting.clear()

    def make_room(self, places: int) -> None:
        """Send away some of those that have no work, but for one."""
        self.step_back()
        while self.idle and places > 0 and self.ready > 1:
            self._ray.kill(self.idle.pop())
            self.ready, places = self.ready - 1, places - 1
