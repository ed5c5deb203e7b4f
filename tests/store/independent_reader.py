"""A reader of feature stores by their specification, stores/README.md: numpy and json, no more.

Checksums are not looked at. What is not done is NaN, or -1 where numbers are whole.
"""

import json
from pathlib import Path

import numpy as np

ABSENT = 2**64 - 1


def read_store(path):
    """The store's attributes, its ids, the status of each row, and its arrays."""
    attributes = metadata(path)["attributes"]["obygaze"]
    n = attributes["n"]
    ids = [bytes(row).rstrip(b"\0").decode() for row in read_bytes(path / "ids")]
    if attributes["state"] == "final":
        status, records = read_bytes(path / "status"), {}
    else:
        status, records = read_records(path, n, attributes["block_rows"])
    arrays = {name: read_array(path, name, status == 1, records) for name in attributes["arrays"]}
    return attributes, ids, status, arrays


def metadata(path):
    return json.loads((path / "zarr.json").read_text())


def read_bytes(path):
    """An array of bytes: one chunk, and four bytes of checksum."""
    shape = metadata(path)["shape"]
    chunk = path.joinpath("c", *("0" for _ in shape)).read_bytes()
    return np.frombuffer(chunk[:-4], np.uint8).reshape(shape)


def read_records(path, n, block_rows):
    """The commit records: a block that has none does not exist."""
    status, records = np.zeros(n, np.uint8), {}
    for block in range(-(-n // block_rows)):
        file = path / "blocks" / f"{block:06d}.json"
        if not file.exists():
            continue
        record = json.loads(file.read_text())
        first = record["block"] * block_rows
        status[first : first + len(record["status"])] = record["status"]
        records[record["block"]] = record["shards"]
    return status, records


def read_array(path, name, done, records):
    """One array, shard by shard."""
    meta = metadata(path / name)
    n, *row = meta["shape"]
    dtype = np.dtype(meta["data_type"]).newbyteorder("<")
    values = np.full((n, *row), np.nan if dtype.kind == "f" else -1, dtype)
    shard_rows = meta["chunk_grid"]["configuration"]["chunk_shape"][0]
    inner = meta["codecs"][0]["configuration"]
    chunk_rows = inner["chunk_shape"][0]
    assert [codec["name"] for codec in inner["codecs"]] == ["bytes", "crc32c"], "is compressed"
    for shard in {row // shard_rows for row in np.flatnonzero(done).tolist()}:
        data = shard_file(path, name, shard, len(row), records).read_bytes()
        index = np.frombuffer(data[-16 * (shard_rows // chunk_rows) - 4 : -4], "<u8")
        for chunk, (offset, size) in enumerate(index.reshape(-1, 2).tolist()):
            first = shard * shard_rows + chunk * chunk_rows
            if offset != ABSENT and first < n:
                rows = np.frombuffer(data[offset : offset + size - 4], dtype)
                values[first : first + chunk_rows] = rows.reshape(chunk_rows, *row)[: n - first]
    values[~done] = np.nan if dtype.kind == "f" else -1
    return values


def shard_file(path: Path, name, shard, axes, records):
    """Where a shard lies; just after a commit still among those that are on their way."""
    sha256 = records.get(shard, {}).get(name) or ""
    staged = path / "staging" / f"{shard:06d}.{name}.{sha256[:16]}"
    return staged if staged.exists() else path.joinpath(name, "c", str(shard), *["0"] * axes)
