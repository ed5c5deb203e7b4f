"""Copy rows from older stores, for items that have not changed since."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np

from obygaze_features.extraction.job import Job
from obygaze_features.extraction.loop import write
from obygaze_features.items.items import WITHHELD, Item, Items
from obygaze_features.items.media import locate
from obygaze_features.store import Done, Status, Store, StoreWriter, open_store
from obygaze_features.store.writer import recipe_differences
from obygaze_features.video.index import fingerprint

logger = logging.getLogger(__name__)


def reuse_rows(job: Job, writers: Mapping[str, StoreWriter]) -> Job:
    """Copy rows that a job lacks from the older stores in its options; return the rest of the job.

    A row is copied if the older store has the same recipe and item. It is left to compute if the
    item's file has changed since; an absent file counts as unchanged.
    """
    paths = job.options.reuse
    for path in [paths] if isinstance(paths, str | Path) else paths:
        old = open_store(path)
        old_rows = find_rows(job, old)
        for name, writer in writers.items():
            own = {key: writer.store.attributes[key] for key in ("items_digest", "block_rows")}
            if recipe_differences(writer.store.attributes, {**old.attributes, **own}):
                continue
            count = 0
            for block in job.blocks:
                rows = [row for row in block.missing.get(name, []) if row in old_rows]
                if rows:
                    write({name: writer}, {name: read_rows(old, rows, old_rows)})
                    count += len(rows)
            writer.log("reused", rows=count)
            logger.info(f"Copied {count} rows of {old.where} into {writer.store.where}")
    return replace(job, stores={name: writer.store.refresh() for name, writer in writers.items()})


def find_rows(job: Job, old: Store) -> dict[int, int]:
    """Return the row of each item of a job that an older store has, by the item's row."""
    items = job.manifest.items
    files = locate(items, job.media).found if job.media else {}
    read_fingerprint = cache(fingerprint)
    keys = {key: row for row, key in enumerate(keys_of(old.items))}
    rows = {}
    for row, key in enumerate(keys_of(items)):
        old_row = keys.get(key)
        if old_row is None or old.status[old_row] != Status.DONE:
            continue
        file = files.get(key[0].id)
        source = old.sources[key[0].id] or ""
        # A fingerprint in a store has more facts, which would need decoding.
        if not (file and file.is_file()) or {*read_fingerprint(file).split()} <= {*source.split()}:
            rows[row] = old_row
    return rows


def keys_of(items: Items) -> list[tuple[Item, str]]:
    """Return what identifies each item; stores have a digest in place of spoken words."""
    items = items.without_spoken_words()
    withheld = items.extra.get(WITHHELD) or [""] * len(items)
    return list(zip(items, withheld, strict=True))


def read_rows(old: Store, rows: list[int], old_rows: Mapping[int, int]) -> dict[int, Done]:
    """Read rows of an older store, to be written as rows of a new one."""
    numbers = np.array([old_rows[row] for row in rows])
    values = {name: old.read_rows(name, numbers) for name in old.arrays}
    outcomes = {}
    for place, row in enumerate(rows):
        source = old.sources[old.ids[old_rows[row]]]
        outcomes[row] = Done({name: column[place] for name, column in values.items()}, source)
    return outcomes
