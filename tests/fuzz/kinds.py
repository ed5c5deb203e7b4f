"""What is fuzzed: how files are damaged and forged, and the commands that read each kind."""

import copy
import hashlib
import json
import random
import re
import shutil
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import safetensors.numpy

import obygaze_features as of
from obygaze_features.manifests import Item, Items

# A run is interrupted here, just before it is complete.
from obygaze_models.experiments import cross_validate as running
from tests.conftest import run_obygaze
from tests.golden.workspace import copy_data, draw_photos
from tests.kit.films import write_sound
from tests.kit.models import write_checkpoint
from tests.kit.run import make_world, to_toml, write_experiment
from tests.kit.store import files_of, write_hdf5

Files = dict[str, bytes]

#: Values that a field of any type must survive.
VALUES: tuple[Any, ...] = (
    *(None, True, 0, 1, -1, 10**9, 2**63, 10**400, 0.5, -1e308, float("inf"), float("nan")),
    *("", "x", "0", "\0", "../../etc/passwd", "/dev/zero", "\x1b]0;owned\x07", "\u202e", "=1+1"),
    *("9" * 5000, "$\\foo{ 5$", "é" * 300, [], {}, [None], [[]], {"": None}, [0, "a"], {"name": 3}),
)
#: Pieces of text that confuse readers of tables, TOML, XML and JSON.
PIECES = (
    *(b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b'"', b",", b";", b"\t", b"|", b"\n\n"),
    *(b"[" * 100_000, b"{" * 5_000, b"9" * 10_000, b"a" * 200_000, b"$\\foo{ 5$", b"\\ud800"),
    *(b"<!DOCTYPE x [<!ENTITY a 'aaaa'>]>", b"&a;", b"]]>", b"../", b"\xf0\x9f\x92\xa3", b"NaN"),
)
#: Estimators and keys, as in an experiment or similar.
ESTIMATOR_LISTS: tuple[Any, ...] = (
    ["svm", "svm"],
    [{"name": "mlp", "max_iter": -1}],
    [{"name": "mlp", "x": 1}],
    [{"as": "a"}],
    ["os:system"],
    [{"name": "pcbm-tree", "negatives": "d"}],
)
KEYS = ("levels", "concepts", "labels", "protocol", "balance", "seeds", "frames", "groups", "x")
TEXTS = (".json", ".jsonl", ".csv", ".toml", ".eaf", ".txt", ".md")
#: Where files of sound have numbers: of WAV, MP4, Matroska, Ogg and FLAC.
MARKS = (
    *(b"RIFF", b"fmt ", b"data", b"mvhd", b"mdhd", b"elst", b"stts", b"stsc", b"stsz", b"stco"),
    *(b"mp4a", b"esds", b"OggS", b"OpusHead", b"fLaC"),
    *(b"\x2a\xd7\xb1", b"\x44\x89", b"\xb5\x88", b"\x9f\x81"),
)
NUMBERS = (0, 1, 7, 2**15 - 1, 2**16 - 1, 10**8, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**64 - 1)


def mutate(files: Files, dice: random.Random) -> Files:
    """Return a copy of the files with one to three changes in one file."""
    files = dict(files)
    name = dice.choice(sorted(files))
    if dice.random() < 0.02:
        del files[name]
        return files
    ways: list[Callable[[bytes, random.Random], bytes]] = [change_bytes]
    for ends, way, times in WAYS:
        if name.endswith(ends):
            ways += [way] * times
    if b"train_negatives = " in files[name]:
        ways += [change_toml] * 8
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        files[name] = dice.choice(ways)(files[name], dice)
    return files


def change_bytes(data: bytes, dice: random.Random) -> bytes:
    """Drop, insert, replace or repeat some bytes."""
    at = dice.randrange(len(data) + 1)
    before = data[max(0, at - 50) : at]
    new = dice.choice((b"", dice.randbytes(1), dice.randbytes(16), before))
    end = at + dice.choice((0, 1, 8, 100, len(data)))
    return data[:at] + new + data[end:]


def change_number(data: bytes, dice: random.Random) -> bytes:
    """Change a number of two, four or eight bytes in any order, after one of the marks."""
    mark = dice.choice([mark for mark in MARKS if mark in data] or [b""])
    places = [match.end() for match in re.finditer(re.escape(mark), data)]
    at = dice.choice(places[:20]) + dice.randrange(40)
    size = dice.choice((2, 4, 8))
    number = dice.choice((*NUMBERS, dice.getrandbits(64)))
    order = dice.choice(("big", "little"))
    new = (number % 256**size).to_bytes(size, order)
    return data[:at] + new + data[at + size :]


def insert_piece(data: bytes, dice: random.Random) -> bytes:
    at = dice.randrange(len(data) + 1)
    rest = data[at + dice.choice((0, 0, 1, 5)) :]
    return data[:at] + dice.choice(PIECES) + rest


def change_table(data: bytes, dice: random.Random) -> bytes:
    rows = [line.split(b",") for line in data.split(b"\n")]
    row = dice.choice(rows)
    way = dice.randrange(4)
    if way == 0:
        rows.remove(row)
    elif way == 1:
        row.append(b"x")
    else:
        cell = dice.choice((*map(to_bytes, VALUES), *PIECES))
        row[dice.randrange(len(row))] = cell
    return b"\n".join(map(b",".join, rows))


def to_bytes(value: object) -> bytes:
    return str(value).encode()


def change_toml(data: bytes, dice: random.Random) -> bytes:
    try:
        values = change_value(tomllib.loads(data.decode()), dice)
    except ValueError:  # damaged by an earlier change
        return change_bytes(data, dice)
    key = "estimators"
    if dice.random() < 0.3:
        key = dice.choice((*values, *KEYS))
    if dice.random() < 0.5:
        values[key] = dice.choice((*VALUES, *ESTIMATOR_LISTS))
    lines = [f"{key} = {to_toml(value)}\n" for key, value in values.items()]
    return "".join(lines).encode()


def change_json(data: bytes, dice: random.Random) -> bytes:
    """Change a value of a JSON document, or in one of its lines."""
    lines = [data]
    if data and parse_json(data.splitlines()[0]) is not None:
        lines = data.splitlines(keepends=True)
    at = dice.randrange(len(lines))
    value = parse_json(lines[at])
    if value is None:
        return change_bytes(data, dice)
    changed = json.dumps(change_value(value, dice), ensure_ascii=dice.random() < 0.5)
    if dice.random() < 0.02:
        changed = "[" * 50_000
    lines[at] = changed.encode("utf-8", "surrogatepass") + b"\n"
    return b"".join(lines)


def parse_json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def change_value(value: Any, dice: random.Random) -> Any:
    paths = list(paths_in(value))
    if not paths:
        return dice.choice(VALUES)
    # Short paths are few, and determine the meaning of the rest.
    paths.sort(key=len)
    shortest = int(len(paths) * dice.random())
    path = dice.choice(paths[: max(1, shortest)])
    way = dice.randrange(7)
    if way == 0:
        return with_value(value, path)
    own = at_path(value, path)
    donor = at_path(value, dice.choice(paths))
    if way > 3:
        return with_value(value, path, dice.choice(VALUES))
    return with_value(value, path, (None, [own], str(own), donor)[way])


def at_path(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def with_value(value: Any, path: tuple[Any, ...], *new: Any) -> Any:
    """Return a copy with a new value at a path, or without what is there."""
    value = copy.deepcopy(value)
    parent = at_path(value, path[:-1])
    if new:
        [parent[path[-1]]] = new
    else:
        del parent[path[-1]]
    return value


def paths_in(value: Any, path: tuple[Any, ...] = ()) -> Any:
    inner: Any = ()
    if isinstance(value, dict):
        inner = value.items()
    elif isinstance(value, list):
        inner = list(enumerate(value))[:40]
    for key, part in inner:
        yield (*path, key)
        yield from paths_in(part, (*path, key))


def forge_array(array: Any, dice: random.Random) -> Any:
    way = dice.randrange(5)
    array = array.copy()
    if way == 0 and array.size:
        number = dice.choice((10**9, -(10**9), -1, 10**4))
        new = np.array(number).astype(array.dtype)  # or wraps
        array.flat[dice.randrange(array.size)] = new
    elif way == 1:
        array = array.astype(dice.choice(("float32", "float64", "int64", "int32", "uint8", "bool")))
    elif way == 2 and array.ndim and array.size:
        count = len(array)
        rows = dice.choice((0, 1, count - 1, count + 1, 20_000))
        array = np.resize(array, (rows, *array.shape[1:]))
    elif way == 3:
        deeper = array[..., None]
        array = dice.choice((array.T, array.reshape(-1), deeper, array * np.nan))
    else:
        array = np.zeros(dice.choice(SHAPES), array.dtype)
    return np.ascontiguousarray(array)


SHAPES: tuple[tuple[int, ...], ...] = ((0, 10**9), (20_000, 1), (1, 20_000), ())


def forge_arrays(data: bytes, dice: random.Random) -> bytes:
    try:
        arrays = safetensors.numpy.load(data)
    except Exception:  # damaged by an earlier change
        return change_bytes(data, dice)
    if not arrays:
        return data
    name = dice.choice(sorted(arrays))
    return safetensors.numpy.save(arrays | {name: forge_array(arrays[name], dice)})


#: The ends of files' names, how such files are changed, and how often beside other ways.
WAYS = (
    (TEXTS, insert_piece, 2),
    ((".json", ".jsonl"), change_json, 8),
    (".csv", change_table, 6),
    ((".wav", ".mp4", ".mkv", ".ogg"), change_number, 8),
    (".safetensors", forge_arrays, 10),
)


@dataclass(frozen=True)
class Kind:
    #: Of the input in its folder.
    name: str
    #: The commands: ``{x}`` is the input, ``{data}`` the golden data, ``{out}`` an empty folder.
    commands: tuple[str, ...]
    #: How many `make fuzz` makes; `make test` makes one or none.
    inputs: int
    #: The files to change: those whose names begin with this.
    only: tuple[str, ...] = ("",)
    #: Updates the digests, like a forger who knows the format.
    seal: Callable[[Files], None] = lambda files: None


def reseal(name: str, files: Files) -> None:
    """Update the digests in a JSON file that lists files, and its own digest if it has one."""
    header = read_header(files, name)
    if header is None:
        return
    has_digest = header.pop("sha256", None)
    if isinstance(listed := header.get("files"), dict):
        listed |= {part: sha256(files[part]) for part in listed if part in files}
    if has_digest:
        header["sha256"] = sha256(json.dumps(header, sort_keys=True).encode())
    files[name] = json.dumps(header).encode()


seal_model = partial(reseal, "model.json")
seal_run = partial(reseal, "run.json")


def seal_fits(files: Files) -> None:
    for name in [name for name in files if name.endswith("/model.json")]:
        folder = name.removesuffix("model.json")
        own = {n.removeprefix(folder): files[n] for n in files if n.startswith(folder)}
        seal_model(own)
        files[name] = own["model.json"]


def seal_store(files: Files) -> None:
    listed = read_header(files, "checksums.json")
    if listed is not None:
        listed |= {name: sha256(files[name]) for name in listed if name in files}
        files["checksums.json"] = json.dumps(listed).encode()


def read_header(files: Files, name: str) -> dict[str, Any] | None:
    value = parse_json(files.get(name, b""))
    return value if isinstance(value, dict) else None


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


STORE = (
    "stores info {x}",
    "stores verify {x}",
    "stores diff {x} {data}/final.zarr",
    "stores subset {x} --film tt0000002 -o {out}/x.zarr",
    "stores search {x} --text mirror",
)
MODEL = (
    "models list {x}",
    "models predict {x} {data}/xclip.zarr -o {out}/x.csv",
    "models evaluate {x} {data}/xclip.zarr {data}/manifest --labels raw",
    "models explain {x} tt0000001-003 --store {data}/xclip.zarr",
)
TWICE = "{data}/twice/toy.zarr"
"""A store that a fused model reads twice."""
RESUME = ("models run {data}/golden.toml -o {x.parent}/{x.stem}",)
GOLDEN = ("mlp", "pcbm-tree", "svm", "concept-vector")
KINDS: dict[str, Kind] = {
    "manifest": Kind(
        "manifest",
        ("manifests check {x}", "manifests show {x} --by-film", "manifests audit {x}",
         "manifests show {x}"),
        700,
        ("manifest.json", "items.csv", "labels", "splits", "runs"),
    ),
    "open store": Kind("open.zarr", (*STORE, "stores repair {x} --yes"), 300),
    "sealed open store": Kind("open.zarr", STORE, 100, seal=seal_store),
    "final store": Kind("final.zarr", (*STORE, "stores push {x} {out}/x.zip"), 300),
    "sealed final store": Kind("final.zarr", STORE, 100, seal=seal_store),
    "packed store": Kind(
        "packed.zip",
        ("stores info {x}", "stores verify {x}", "stores pull {x} -o {out}/x.zarr"),
        200,
    ),
    **{f"model {m}": Kind(f"models/{m}", MODEL, 100, ("model",), seal_model) for m in GOLDEN},
    "fused": Kind(
        "fused",
        (f"models predict {{x}} {TWICE} {TWICE} -o {{out}}/x.csv",
         f"models explain {{x}} tt0-000 --store {TWICE} --store {TWICE}"),
        100, ("model",), seal_model,
    ),
    "run": Kind(
        "run",
        ("report {x} -o {out}/x.html", "models compare {x} --model mlp --model pcbm-tree",
         "models predict {x}"),
        300,
        ("run.json", "predictions", "clips", "fits", "reasons"),
        seal_run,
    ),
    "partial run": Kind("kept.partial", RESUME, 150),
    "sealed partial run": Kind("kept.partial", RESUME, 150, seal=seal_fits),
    "experiment": Kind("golden.toml", ("models run {x} -o {out}/run",), 250),
    "timelines": Kind(
        "timelines",
        ("annotations show {x}", "annotations project {x} --grid 60 -o {out}/x",
         "annotations export {x} -o {out}/elan"),
        150,
    ),
    "elan": Kind("elan", ("annotations import elan {x} -o {out}/x",), 250),
    "segments": Kind("segments.csv", ("annotations import csv {x} -o {out}/x",), 150),
    "films": Kind(
        "films.csv",
        ("annotations import csv {data}/segments.csv --film-table {x} -o {out}/x",),
        100,
    ),
    "table": Kind("clips.csv", ("manifests import csv {x} -o {out}/x",), 150),
    "hdf5": Kind("theirs.h5", ("stores import {x} --manifest {data}/eight -o {out}/x.zarr",),
                 200),
    "subtitles": Kind(
        "subtitles", ("manifests subtitles {data}/eight {x} -o {out}/x",), 250, ("",),
    ),
    "checkpoint": Kind(
        "checkpoint",
        ("features extract {data}/photos --images {data}/images --backbone {x} --device cpu "
         "-o {out}",),
        100,
        ("config.json", "preprocessor", "tokenizer"),
    ),
    "sound": Kind(
        "sound",
        ("features extract {data}/sounds --videos {x} --backbone tiny-clap --device cpu "
         "--workers 2 -o {out}",),
        200,
    ),
    "battery": Kind("battery.json", ("bias eat {x} --store {data}/words.zarr",), 150),
    "lexicon": Kind(
        "emotions.json", ("bias captions {data}/emotions.csv --minimum 0 --lexicon {x}",), 100,
    ),
}  # fmt: skip


def make_data(folder: Path) -> Path:
    """Write the golden data and the initial files of the other kinds."""
    data = copy_data(folder)
    shutil.rmtree(data / "run")
    (data / "clips.csv").write_text(
        "id,film,media,start,end,level,concepts\na-1,tt0000001,a.mp4,0,2.5,Sure,Body|Look\n"
        "a-2,tt0000001,a.mp4,3,4,Easy Negative,\nb-1,tt0000002,b.mp4,,,Not Sure,Look\n"
    )
    shipped = Path("manifests").resolve()
    shutil.copy(shipped / "lexicons/emotions.json", data)
    test = {"name": "a", "x": "women", "y": "men"}
    test |= {"a": ["love", "peace"], "b": ["hatred", "filth"]}
    test["published"] = {"m": {"d": 1, "significant": True}}
    sets = {"women": ["woman", "girl", "lady"], "men": ["man", "boy", "gentleman"]}
    battery = {"format": "obygaze-battery", "format_version": 1, "name": "mine", "sets": sets}
    battery |= {"models": {"m": ["tiny"]}, "tests": [test]}
    (data / "battery.json").write_text(json.dumps(battery))
    publish = running.publish_folder

    def keep_and_publish(folder: Path, output: Path, **options: bool) -> None:
        """Keep the files of a run that is killed at its end."""
        shutil.copytree(folder, folder.with_name("kept.partial"))
        publish(folder, output, **options)

    for command in (
        "models run {data}/golden.toml -o {data}/run",
        "annotations export {data}/timelines -o {data}/elan",
    ):
        with patch.object(running, "publish_folder", keep_and_publish):
            run_obygaze(*command.format(data=data).split(), code=0)
    write_hdf5(data / "final.zarr", data / "theirs.h5")
    write_subtitles(data)
    draw_photos(data)
    run_obygaze("manifests", "import", "csv", data / "images.csv", "-o", data / "photos", code=0)
    write_checkpoint("tiny-clip", data / "checkpoint")
    write_sounds(data)
    return data


def write_sounds(data: Path) -> None:
    """Write three seconds of sound in several formats, with clips and spans."""
    folder = data / "sound"
    noise = np.random.default_rng(6).normal(0, 0.1, 48_000)
    folder.mkdir()
    write_sound(folder / "tone.wav", "pcm_s16le", noise[:24_000], rate=8000)
    fast = {"movflags": "faststart"}
    write_sound(folder / "film.mp4", "aac", noise, rate=16_000, pictures=3, options=fast)
    write_sound(folder / "film.mkv", "flac", noise, rate=16_000, pictures=3)
    write_sound(folder / "song.ogg", "libopus", noise, rate=16_000)
    items = []
    for path in sorted(folder.iterdir()):
        whole = Item(path.name.replace(".", "-"), media=path.name)
        items += [whole, replace(whole, id=f"{whole.id}-2", start=1.25, end=2.5)]
    of.Manifest("sounds", Items.of(items)).save(data / "sounds")


def write_subtitles(data: Path) -> None:
    """Write subtitles for the films of ``eight``, in two formats."""
    lines = (
        "00:00:01,000 --> 00:00:02,500\n<i>Look</i>\nat her!\n\n2\n0:11.5 --> 0:12.5\nCaf\u00e9\n"
    )
    (data / "subtitles").mkdir()
    (data / "subtitles/tt0000001.srt").write_text(f"1\n{lines}", encoding="utf-8")
    (data / "subtitles/tt0000002.vtt").write_text(f"WEBVTT\n\n{lines}", encoding="utf-8")


def save_fusions(data: Path) -> None:
    """Save a model of two stores."""
    world = make_world(data / "twice")
    keys = {"store": [world.store, world.store], "estimators": ["logistic"]}
    toml = write_experiment(data / "twice/e.toml", world, **keys)
    run_obygaze("models", "train", toml, "-o", data / "fused", code=0)


def read_files(path: Path) -> Files:
    """Return the files of a folder by relative path; a single file has an empty name."""
    return {"": path.read_bytes()} if path.is_file() else files_of(path)


def write_files(path: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        file = path / name if name else path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
