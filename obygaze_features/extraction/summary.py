"""What a run did: done, failed and why, how fast, and its bottleneck."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from obygaze_features.store import Failed, Status
from obygaze_features.store.writer import append_to_log

if TYPE_CHECKING:
    from obygaze_features.extraction.plan import ExtractionRun
    from obygaze_features.extraction.readers import ReadItem


@dataclass(frozen=True)
class Counts:
    """Counts of the items that were read.

    Parameters
    ----------
    frames
        Frames or images that were read.
    slow
        Why films were decoded from their start, and how many.
    resized_by_cpu
        How many items a GPU had no memory to resize.
    thinned
        How many clips have more frames at the rate than a backbone takes: it saw fewer a second.
    tracks
        Which sound tracks were heard in clips that have several, ``1 of 2 (fra)``, and how many.
    unheard
        How many windows of sound clips have, of which not all were heard, and how many clips.
    cut
        Texts of which only the beginning was read, and their token counts.
    lost
        Why processes of a cluster were lost, and how many.
    """

    frames: int = 0
    slow: Counter[str] = field(default_factory=Counter)
    resized_by_cpu: int = 0
    thinned: int = 0
    tracks: Counter[str] = field(default_factory=Counter)
    unheard: Counter[int] = field(default_factory=Counter)
    cut: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: Counts) -> Counts:
        return Counts(**{name: count + vars(other)[name] for name, count in vars(self).items()})


@dataclass
class Tally:
    """Counts of a run in progress.

    Items, and what was told of those that were read; the seconds that the run waited for frames
    (`decode`), for the device (`device`; a CPU computes then) and for the disk (`write`).
    """

    clips: int = 0
    counts: Counts = field(default_factory=Counts)
    decode: float = 0.0
    device: float = 0.0
    write: float = 0.0

    def count(self, item: ReadItem | Failed) -> None:
        """Count an item that was read, or could not be."""
        self.clips += 1
        if not isinstance(item, Failed):
            self.counts += item.counts

    def shares(self, seconds: float) -> dict[str, float]:
        """Each stage's share of a time; the rest of it is loading and planning."""
        times = {"decode": self.decode, "device": self.device, "write": self.write}
        times["start"] = max(0.0, seconds - sum(times.values()))
        return {stage: stage_seconds / seconds for stage, stage_seconds in times.items()}

    def note(self, seconds: float) -> str:
        """Speed, where the time goes, and the bottleneck, for a line of progress."""
        shares = self.shares(seconds)
        busy = ", ".join(f"{stage} {shares[stage]:.0%}" for stage in ("decode", "device", "write"))
        bound = max(shares, key=shares.__getitem__)
        frames = self.counts.frames
        seen = f"{frames / seconds:.0f} frames/s, " if frames else ""
        return f"{seen}{busy}, bound by {bound}"


@dataclass(frozen=True, kw_only=True)
class Summary(Counts):
    """What an extraction did, and what is told of the items that it read.

    Parameters
    ----------
    stores
        The stores' paths.
    wanted
        Items selected, done before or not.
    clips
        Items that this run processed.
    done, done_in, left
        Selected items that are done in every store, in each by its name, and those still to do:
        time was up, or other runs have them.
    failed
        ``missing``, ``unreadable`` or ``not_finite`` -> id -> reason, of the selected items; with
        the names of the stores that it is of, if not of all.
    shares
        ``decode``, ``device``, ``write`` and ``start``: the share of `seconds` in which the run
        waited for frames, for the device and for the disk, and loaded and planned. A GPU computes
        while the run waits for frames, too.
    batches, bytes
        The batch size of each backbone, after any halving; the size of each store.
    ended
        ``done``; ``time`` if ``max_hours`` left something to do; or the error's name.
    broken
        Why backbones were left out, by name; their stores are not counted above.
    """

    stores: list[Path]
    wanted: int
    clips: int
    done: int
    done_in: dict[str, int]
    left: int
    failed: dict[str, dict[str, str]]
    seconds: float
    shares: dict[str, float]
    batches: dict[str, int]
    bytes: dict[str, int]
    ended: str
    broken: dict[str, str]

    @property
    def clips_a_second(self) -> float:
        """Items a second."""
        return self.clips / self.seconds

    @property
    def frames_a_second(self) -> float:
        """Frames a second."""
        return self.frames / self.seconds

    @property
    def bound_by(self) -> str:
        """The stage that took longest."""
        return max(self.shares, key=lambda stage: self.shares[stage])

    def to_json(self) -> dict[str, Any]:
        """As JSON values, with the rates."""
        return {
            **vars(self),
            "stores": [str(path) for path in self.stores],
            "seconds": round(self.seconds, 3),
            "clips_a_second": round(self.clips_a_second, 3),
            "frames_a_second": round(self.frames_a_second, 3),
            "shares": {stage: round(share, 3) for stage, share in self.shares.items()},
            "bound_by": self.bound_by,
        }


def summarise(run: ExtractionRun, ended: str) -> Summary:
    """Summarise the run, from what its stores hold now."""
    rows, tally, seconds = run.rows, run.tally, time.monotonic() - run.begin
    names = [name for name in run.targets if name not in run.broken.reasons]
    names = names or list(run.targets)
    stores = {name: run.targets[name].writer.store.refresh() for name in names}
    names_of: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for name, store in stores.items():
        for row in rows[store.status[rows] > Status.DONE].tolist():
            kind, item = Status(store.status[row]).name.lower(), store.ids[row]
            names_of[kind, item, store.failures[item]].append(name)
    failed: dict[str, dict[str, str]] = defaultdict(dict)
    for (kind, item, reason), own in names_of.items():
        text = reason if len(own) == len(stores) else f"{reason} ({', '.join(own)})"
        failed[kind][item] = "; ".join(filter(None, (failed[kind].get(item), text)))
    status = np.array([store.status[rows] for store in stores.values()])
    left = int((status == Status.TODO).any(axis=0).sum())
    return Summary(
        **vars(tally.counts),
        stores=[store.path for store in stores.values()],
        wanted=len(rows),
        clips=tally.clips,
        done=int((status == Status.DONE).all(axis=0).sum()),
        done_in=dict(zip(stores, (status == Status.DONE).sum(axis=1).tolist(), strict=True)),
        left=left,
        failed=dict(failed),
        seconds=seconds,
        shares=tally.shares(seconds),
        batches=run.batches,
        bytes={
            name: int((store.status == Status.DONE).sum())
            * sum(spec.row_bytes for spec in store.specs)
            for name, store in stores.items()
        },
        ended="done" if ended == "time" and not left else ended,
        broken=run.broken.reasons,
    )


def log_run(run: ExtractionRun, summary: Summary) -> None:
    """Append a run to each store's log, and with all failures to ``log.jsonl`` beside them."""
    packages = {name: version(name) for name in ("av", "torch", "transformers")}
    fields = summary.to_json()
    brief = {key: fields[key] for key in ("clips", "seconds", "shares")}
    for name, target in run.targets.items():
        target.writer.log("extracted", device=run.devices[name], **packages, **brief)
        folder = target.writer.store.path.parent
    append_to_log(folder, "extracted", devices=run.devices, **packages, **fields)
