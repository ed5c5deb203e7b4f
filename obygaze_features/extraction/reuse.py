"""Copy rows from older stores, and warn of rows whose files have been replaced since."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from obygaze_features.common.formatting import join_some
from obygaze_features.errors import VideoError
from obygaze_features.extraction.job import Job
from obygaze_features.items.items import Item, media_stem
from obygaze_features.store import Status, Store, StoreLike, StoreWriter, open_store
from obygaze_features.store.diff import differences, require_same
from obygaze_features.store.writer import append_to_log, read_outcomes
from obygaze_features.video.index import fingerprint

logger = logging.getLogger(__name__)


def reuse_rows(job: Job, writers: Mapping[str, StoreWriter]) -> Job:
    """Copy rows that a job lacks from the older stores in its options; return the rest of the job.

    A row is copied if it is done in an older store with the same recipe and item, unless the
    item's file has changed since; an absent file counts as unchanged.
    """
    paths = job.options.reuse
    for path in [paths] if isinstance(paths, StoreLike) else paths:
        old = open_store(path)
        unchanged = unchanged_rows(job, old)
        alike = {}
        for name, writer in writers.items():
            if not differences(old.attributes, writer.store.attributes):
                alike[name] = writer
        if not alike:
            first = next(iter(writers.values())).store
            require_same(old.attributes, first.attributes, f"{old.where} cannot be reused")

        for name, writer in alike.items():
            count = _copy_rows(job, name, writer, old, unchanged)
            if count:
                append_to_log(writer.store.path, "reused", rows=count)
            logger.info(f"Rows copied from {old.where} into {job.paths[name]}: {count}")
    return replace(job, stores={name: writer.store.refresh() for name, writer in writers.items()})


def _copy_rows(
    job: Job,
    name: str,
    writer: StoreWriter,
    old: Store,
    unchanged: Mapping[int, int],
) -> int:
    """Copy the unchanged rows that a writer lacks, block by block; return their number."""
    rows = [row for row in job.missing[name].tolist() if row in unchanged]
    for _, block in groupby(rows, key=lambda row: row // job.block_rows):
        of_block = list(block)
        old_rows = np.array([unchanged[row] for row in of_block])
        copied: dict[int, Any] = dict(zip(of_block, read_outcomes(old, old_rows), strict=True))
        writer.write_rows(copied)
    return len(rows)


def unchanged_rows(job: Job, old: Store) -> dict[int, int]:
    """Map the rows of unchanged items to their rows in an older store, if these are done.

    Stores leave out words spoken in films, so items with spoken words never count as unchanged.
    """
    items = job.manifest.items
    replaced = set(replaced_ids(old, job.located.found, cache(_facts)))
    unchanged = {}
    for old_row in np.flatnonzero(old.status == Status.DONE).tolist():
        item = old.items[old_row]
        row = items.row_of.get(item.id)
        if row is None or item.id in replaced:
            continue
        if _without_extension(items[row]) == _without_extension(item):
            unchanged[row] = old_row
    return unchanged


def warn_of_replaced(job: Job) -> None:
    """Warn of done rows whose files have been replaced since; a run keeps such rows."""
    facts_of = cache(_facts)
    for store in job.stores.values():
        ids = replaced_ids(store, job.located.found, facts_of)
        if ids:
            logger.warning(
                f"{store.path}: rows computed from other files than {job.media} has now: "
                f"{len(ids)} ({join_some(ids, 3)}). They are kept. To compute them again, choose "
                f"another output, and copy the other rows: --reuse {store.path}"
            )


def replaced_ids(
    store: Store,
    files: Mapping[str, Path],
    facts_of: Callable[[Path], set[str]],
) -> list[str]:
    """Return the ids whose rows are done, but not from the file that `files` has for them."""
    ids = store.done_ids(list(files))
    sources = store.rows_table["source"]
    replaced = []
    for id_, row in zip(ids, store.find_rows(ids).tolist(), strict=True):
        if not facts_of(files[id_]).issubset(sources[row].split()):
            replaced.append(id_)
    return replaced


def _facts(file: Path) -> set[str]:
    """Return a file's fingerprint; a store's has more facts, which only decoding tells."""
    with contextlib.suppress(VideoError):  # it cannot be read
        if file.is_file():  # reading a pipe might never end
            return set(fingerprint(file).split())
    return set()


def _without_extension(item: Item) -> Item:
    return replace(item, media=media_stem(item.media))
