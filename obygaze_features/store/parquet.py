"""Write the vectors of a store as one Parquet file, for the Hugging Face Hub and DataFrames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from obygaze_features.common.package import need
from obygaze_features.common.progress import progress
from obygaze_features.store.store import PART_BYTES, Store


def write_parquet(path: Path, store: Store) -> None:
    """Write a Parquet file for ``datasets`` and the Hub: each item's id, film, times and vectors.

    Missing vectors have the fill value. Raises `MissingExtra` without pyarrow.
    """
    parquet = need("pyarrow.parquet", extra="remote")
    import pyarrow as pa

    specs = [spec for spec in store.specs if len(spec.shape) == 1 and not spec.numbers_frames]

    def read(part: slice) -> Any:
        ids = store.ids[part]
        columns = {
            "id": ids,
            "film": store.items.films[part],
            "start": store.items.starts[part],
            "end": store.items.ends[part],
        }
        for spec in specs:
            values = store.read(spec.name, ids, missing="nan")
            columns[spec.name] = pa.FixedSizeListArray.from_arrays(values.ravel(), *spec.shape)
        store.forget()
        return pa.table(columns)

    step = max(1, PART_BYTES // (1 + sum(spec.row_bytes for spec in specs)))
    schema = read(slice(1)).schema
    # Without dictionaries, as no two vectors are equal.
    with parquet.ParquetWriter(path, schema, compression="zstd", use_dictionary=False) as writer:
        for first in progress(range(0, len(store), step), f"Writing {path.name}", unit="part"):
            writer.write_table(read(slice(first, first + step)))
