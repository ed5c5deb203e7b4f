"""Copy rows from older stores, for items that have not changed since."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from itertools import groupby
from pathlib import Path

import numpy as np

from obygaze_features.common.text import join_some
from obygaze_features.errors import StoreError
from obygaze_features.extraction.job import Job
from obygaze_features.extraction.loop import write
from obygaze_features.items.media import locate
from obygaze_features.store import Done, Status, Store, StoreWriter, open_store
from obygaze_features.store.diff import differences
from obygaze_features.store.writer import append_to_log
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
        ids = unchanged_ids(job, old)
        alike = {}
        for name, writer in writers.items():
            differing = differences(writer.store.attributes, old.attributes)
            if not differing:
                alike[name] = writer
        if not alike:
            names = join_some([*differing])
            raise StoreError(f"{old.where} cannot be reused: it was made with different {names}")

        for name, writer in alike.items():
            count = _copy_rows(job, name, writer, old, ids)
            if count:
                append_to_log(writer.store.path, "reused", rows=count)
            logger.info(f"Copied {count} rows of {old.where} into {job.paths[name]}")
    return replace(job, stores={name: writer.store.refresh() for name, writer in writers.items()})


def _copy_rows(job: Job, name: str, writer: StoreWriter, old: Store, ids: set[str]) -> int:
    """Copy the rows of these ids that a writer lacks, block by block; return their number."""
    id_of = {row: job.manifest.ids[row] for row in job.missing[name].tolist()}
    rows = [row for row, item_id in id_of.items() if item_id in ids]
    for _, block in groupby(rows, key=lambda row: row // job.block_rows):
        copied = {row: Done(old[id_of[row]], old.sources[id_of[row]]) for row in block}
        write({name: writer}, {name: copied})
    return len(rows)


def unchanged_ids(job: Job, old: Store) -> set[str]:
    """Return the ids of a job's items that are the same in an older store and are done there.

    Stores have no words that are spoken in films, so such texts never count as the same.
    """
    items = job.manifest.items
    files = locate(items, job.media).found if job.media else {}
    read_fingerprint = cache(fingerprint)
    ids = set()
    for old_row in np.flatnonzero(old.status == Status.DONE).tolist():
        item = old.items[old_row]
        if item.id not in items.row_of or items[items.row_of[item.id]] != item:
            continue
        file = files.get(item.id)
        facts = read_fingerprint(file).split() if file and file.is_file() else []
        # A store's fingerprint has more facts, which only decoding tells.
        if set(facts) <= set((old.sources[item.id] or "").split()):
            ids.add(item.id)
    return ids
