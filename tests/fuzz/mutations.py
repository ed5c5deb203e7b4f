"""Damage: what a file that somebody edited, cut off or forged may hold."""

from __future__ import annotations

import io
import json
import random
import re
import zipfile
from collections.abc import Callable
from typing import Any

import numpy as np
import safetensors.numpy

Files = dict[str, bytes]

#: Values that a field of any type must survive.
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 10**9, 2**31, 2**63, 10**400, 0.5, -1e308, float("inf"),
    float("nan"),
    "", "x", "0", "\0", "../../etc/passwd", "/dev/zero", "\x1b]0;owned\x07", "\u202e", "9" * 5000,
    "=1+1", "$\\foo{ 5$", "é" * 300, [], {}, [None], [[]], {"": None}, [0, "a"], {"name": 3},
)  # fmt: skip
#: Pieces of text that confuse readers of tables, TOML, XML and JSON.
PIECES = (
    b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b'"', b"'", b",", b";", b"\t", b"|", b"\n\n",
    b"[" * 100_000, b"{" * 5_000, b"9" * 10_000, b"a" * 200_000, b"NaN", b"-1", b"1e999",
    b"<!DOCTYPE x [<!ENTITY a 'aaaa'>]>", b"&a;", b"]]>", b"../", b"\xf0\x9f\x92\xa3",
    b"$\\foo{ 5$", b"\\ud800", b"0x1", b"1_000", b"--", b"inf", b"#", b"=",
)  # fmt: skip
#: As in an experiment, and near to it.
KEYS = ("levels", "concepts", "labels", "pooling", "protocol", "balance", "seed", "seeds", "split",
        "frames", "array", "negatives", "stores", "predictions", "x")  # fmt: skip
TOML_VALUES: tuple[Any, ...] = (
    "", "x", "S", "all", "official", "paper", "frames", "\x1b[31m", "../..", "/dev/zero", "a" * 300,
    0, 1, -1, 10**15, 0.5, float("nan"), float("inf"), True, [], ["S"], ["EN", "HN", "S"], [[]],
    [["S"], ["EN"]], ["S", "S"], [1], {}, {"name": "mlp"}, [{"name": "mlp"}], ["svm", "svm"],
    [{"name": "mlp", "max_iter": -1}], [{"name": "mlp", "x": 1}], [{"name": ""}], [{"as": "a"}],
    ["sklearn.svm:SVC"], ["os:system"], [{"name": "pcbm-tree", "negatives": "d"}], ["Look"],
)  # fmt: skip
#: What fsspec knows besides the schemes that are read, and what looks like one of these.
OTHER_SCHEMES = (
    "reference", "simplecache", "filecache", "blockcache", "cached", "zip", "tar", "libarchive",
    "github", "gist", "git", "ftp", "sftp", "ssh", "smb", "memory", "data", "dask", "dir", "local",
    "asynclocal", "generic", "hdfs", "arrow_hdfs", "webhdfs", "webdav", "jupyter", "gdrive", "gcs",
    "s3a", "az", "abfs", "adl", "oci", "oss", "lakefs", "dropbox", "wandb", "HTTP", "File",
    "http+x", "httpss", "\u202ehttp", "javascript", "", ":", "os:system",
)  # fmt: skip
RESTS = (
    "127.0.0.1:1/x.json",
    "ann:s3cret@127.0.0.1:1/x.zarr",
    "own:name@main/x.zarr",
    "x.zarr",
    "",
    "/etc/passwd",
    "[::1]:1/x.zip",
    "127.0.0.1:1/x.zarr?token=s3cret",
    "x" * 5000,
    "%2e%2e/x",
)
TEXTS = (".json", ".jsonl", ".csv", ".toml", ".eaf", ".txt", ".md")


def mutate(files: Files, dice: random.Random) -> Files:
    """A copy of the files with one of them changed, by one to three changes."""
    files = dict(files)
    name = dice.choice(sorted(files))
    ways: list[Callable[[bytes, random.Random], bytes]] = [change_bytes]
    if name.endswith(TEXTS):
        ways += [insert_piece] * 2
    if name.endswith((".json", ".jsonl")):
        ways += [change_json] * 8
    if b"train_negatives = " in files[name]:
        ways += [change_toml] * 8
    if name.endswith(".csv"):
        ways += [change_table] * 6
    if name.endswith(".safetensors"):
        ways += [change_safetensors] * 4 + [forge_arrays] * 6
    if name.endswith(".skops"):
        ways += [forge_skops] * 10
    if dice.random() < 0.02:
        del files[name]
        return files
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        files[name] = dice.choice(ways)(files[name], dice)
    return files


def forge_address(files: Files, dice: random.Random) -> Files:
    """An experiment whose store is behind a URL of a scheme, or a chain, that is not read."""
    scheme, rest = dice.choice(OTHER_SCHEMES), dice.choice(RESTS)
    address = f"{scheme}://{rest}"
    if dice.random() < 0.5:
        read = dice.choice(("http", "https", "s3", "file"))
        address = dice.choice((f"{scheme}::{read}://{rest}", f"{scheme}://x::{read}://{rest}"))
    line = f"store = {json.dumps(address)}".encode()
    [name] = files
    return {name: re.sub(rb"(?m)^store = .*", lambda match: line, files[name])}


def change_bytes(data: bytes, dice: random.Random) -> bytes:
    """Flip a bit, cut, repeat, overwrite or append."""
    at = dice.randrange(len(data) + 1)
    way = dice.randrange(6)
    if way == 0 and at < len(data):
        return data[:at] + bytes([data[at] ^ 1 << dice.randrange(8)]) + data[at + 1 :]
    if way == 1:
        return data[:at]
    if way == 2:
        return data[:at] + data[at + dice.choice((1, 8, 100)) :]
    if way == 3:
        return data[:at] + dice.randbytes(dice.choice((1, 4, 16))) + data[at + 16 :]
    if way == 4:
        return data + dice.randbytes(8)
    return data[:at] + data[max(0, at - 50) :]


def insert_piece(data: bytes, dice: random.Random) -> bytes:
    """Put a piece that means something to a parser somewhere."""
    at = dice.randrange(len(data) + 1)
    return data[:at] + dice.choice(PIECES) + data[at + dice.choice((0, 0, 1, 5)) :]


def change_table(data: bytes, dice: random.Random) -> bytes:
    """Change a cell, or a row, of a CSV table."""
    rows = [line.split(b",") for line in data.split(b"\n")]
    row = dice.choice(rows)
    way = dice.randrange(5)
    if way == 0:
        rows.append(row)
    elif way == 1:
        rows.remove(row)
    elif way == 2:
        row.append(b"x")
    else:
        value = dice.choice(VALUES)
        row[dice.randrange(len(row))] = dice.choice((str(value).encode(), dice.choice(PIECES)))
    return b"\n".join(map(b",".join, rows))


def change_toml(data: bytes, dice: random.Random) -> bytes:
    """Give a key another value, or put in another key."""
    lines = data.decode("utf-8", "surrogateescape").splitlines(keepends=True)
    at = dice.randrange(len(lines))
    value = json.dumps(dice.choice(TOML_VALUES)).replace('": ', '" = ')
    value = value.replace("NaN", "nan").replace("Infinity", "inf")
    key = lines[at].partition("=")[0] if dice.random() < 0.8 else dice.choice(KEYS)
    lines[at : at + (dice.random() < 0.9)] = [f"{key}= {value}\n"]
    return "".join(lines).encode("utf-8", "surrogateescape")


def change_json(data: bytes, dice: random.Random) -> bytes:
    """Change a value somewhere in a JSON document, or in a line of one."""
    head, line, tail = b"", data, b""
    if (lines := data.splitlines(keepends=True)) and _parsed(lines[0]) is not None:
        at = dice.randrange(len(lines))
        head, line, tail = b"".join(lines[:at]), lines[at], b"".join(lines[at + 1 :])
    value = _parsed(line)
    if value is None:
        return change_bytes(data, dice)
    if dice.random() < 0.02:
        changed = "[" * 50_000
    else:
        changed = json.dumps(change_value(value, dice), ensure_ascii=dice.random() < 0.5)
    return head + changed.encode("utf-8", "surrogatepass") + b"\n" + tail


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def change_value(value: Any, dice: random.Random) -> Any:
    """A copy with one part replaced, removed, repeated or renamed."""
    paths = list(_paths(value))
    if not paths:
        return dice.choice(VALUES)
    # Short paths are few, and say what the rest means.
    paths.sort(key=len)
    path = dice.choice(paths[: max(1, int(len(paths) * dice.random()))])
    value = parent = json.loads(json.dumps(value))
    for key in path[:-1]:
        parent = parent[key]
    key, way = path[-1], dice.randrange(8)
    if way == 0:
        del parent[key]
    elif way == 1 and isinstance(parent, list):
        parent.insert(key, parent[key])
    elif way == 1:
        parent[str(dice.choice(VALUES))] = parent.pop(key)
    elif way == 2:
        parent[key] = [parent[key]]
    elif way == 3:
        parent[key] = str(parent[key])
    elif way == 4:
        donor = value
        for step in dice.choice(paths):
            donor = donor[step]
        parent[key] = json.loads(json.dumps(donor))
    else:
        parent[key] = dice.choice(VALUES)
    return value


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Any:
    inner: Any = ()
    if isinstance(value, dict):
        inner = value.items()
    elif isinstance(value, list):
        inner = list(enumerate(value))[:40]
    for key, part in inner:
        yield (*path, key)
        yield from _paths(part, (*path, key))


def forge_array(array: Any, dice: random.Random) -> Any:
    """A sound array with other numbers, or of another shape or type."""
    way = dice.randrange(5)
    array = array.copy()
    if way == 0 and array.size:
        array.flat[dice.randrange(array.size)] = dice.choice((10**9, -(10**9), -1, 10**4))
    elif way == 1:
        array = array.astype(dice.choice(("float32", "float64", "int64", "int32", "uint8", "bool")))
    elif way == 2 and array.size:
        rows = dice.choice((0, 1, array.shape[0] - 1, array.shape[0] + 1, 20_000))
        array = np.resize(array, (rows, *array.shape[1:]))
    elif way == 3:
        array = dice.choice((array.T, array.reshape(-1), array[..., None]))
    else:
        array = np.zeros(dice.choice(((0, 10**9), (20_000, 1), (1, 20_000), ())), array.dtype)
    return np.ascontiguousarray(array)


def forge_arrays(data: bytes, dice: random.Random) -> bytes:
    """Replace one of the arrays in a safetensors file by another sound one."""
    try:
        arrays = safetensors.numpy.load(data)
    except Exception:  # damaged by an earlier change
        return change_bytes(data, dice)
    if not arrays:
        return data
    name = dice.choice(sorted(arrays))
    return safetensors.numpy.save(arrays | {name: forge_array(arrays[name], dice)})


def forge_skops(data: bytes, dice: random.Random) -> bytes:
    """Replace one of the arrays in a skops file, or change what it is made of."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            files = {name: archive.read(name) for name in archive.namelist()}
        name = dice.choice(sorted(files))
        if name.endswith(".npy"):
            array, file = np.load(io.BytesIO(files[name])), io.BytesIO()
            np.save(file, forge_array(array, dice))
            files[name] = file.getvalue()
        else:
            files[name] = change_json(files[name], dice)
    except (zipfile.BadZipFile, ValueError):  # damaged by an earlier change
        return change_bytes(data, dice)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for member, content in files.items():
            archive.writestr(member, content)
    return file.getvalue()


def change_safetensors(data: bytes, dice: random.Random) -> bytes:
    """Change the header of the arrays, or a number in them."""
    size = int.from_bytes(data[:8], "little")
    if dice.random() < 0.5 or size > len(data) or _parsed(data[8 : 8 + size]) is None:
        at = dice.randrange(min(8 + size, len(data)), len(data) + 1) // 4 * 4
        number = dice.choice((b"\xff\xff\x7f\x7f", b"\x00\x00\xc0\x7f", b"\xff" * 4, b"\0" * 4))
        return data[:at] + number + data[at + 4 :]
    header = json.dumps(change_value(_parsed(data[8 : 8 + size]), dice)).encode()
    return len(header).to_bytes(8, "little") + header + data[8 + size :]
