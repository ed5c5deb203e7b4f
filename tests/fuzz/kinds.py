"""What is fuzzed: for each kind of input a sound example, and the commands that read it."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from obygaze_features import open_store
from obygaze_models import save_model
from obygaze_models.estimators.classes import keywords, reads_frames
from obygaze_models.estimators.registry import ESTIMATORS, make_estimator
from obygaze_models.experiments.finished_fits import FinishedFits
from tests.conftest import run_obygaze
from tests.fuzz.mutations import Files, forge_address, mutate
from tests.golden.workspace import copy_data


@dataclass(frozen=True)
class Kind:
    """A kind of input.

    Parameters
    ----------
    name
        Of the input in its folder.
    commands
        What reads it: ``{x}`` is the input, ``{data}`` the golden data, ``{out}`` an empty folder,
        ``{address}`` the store that an experiment names.
    inputs
        How many `make fuzz` makes; `make test` makes one in `test_fuzz.SHARE` of them.
    only
        Which of its files are changed: those whose names begin so.
    seal
        Makes the digests right again, as somebody does who knows the format.
    change
        Damages or forges it.
    refused
        Whether each command must refuse each input.
    """

    name: str
    commands: tuple[str, ...]
    inputs: int
    only: tuple[str, ...] = ("",)
    seal: Callable[[Files], None] = lambda files: None
    change: Callable[[Files, random.Random], Files] = mutate
    refused: bool = False


def seal_model(files: Files) -> None:
    """New digests in ``model.json``."""
    from obygaze_models.model_header import digest_of

    header = _header(files, "model.json")
    if header is None:
        return
    header.pop("sha256", None)
    if isinstance(listed := header.get("files"), dict):
        listed |= {name: _sha256(files[name]) for name in listed if name in files}
    header["sha256"] = digest_of(header)
    files["model.json"] = json.dumps(header).encode()


def seal_run(files: Files) -> None:
    """New digests in ``run.json``."""
    from obygaze_models.experiments.record import seal

    header = _header(files, "run.json")
    if header is None:
        return
    if isinstance(listed := header.get("files"), dict):
        listed |= {name: _sha256(files[name]) for name in listed if name in files}
    header["sha256"] = seal(header)
    files["run.json"] = json.dumps(header).encode()


def seal_store(files: Files) -> None:
    """New digests in ``checksums.json``."""
    listed = _header(files, "checksums.json")
    if listed is not None:
        listed |= {name: _sha256(files[name]) for name in listed if name in files}
        files["checksums.json"] = json.dumps(listed).encode()


def seal_fits(files: Files) -> None:
    """New digests in each ``fit.json`` of an interrupted run."""
    from obygaze_models.model_header import digest_of

    for name in [name for name in files if name.endswith("/fit.json")]:
        record = _header(files, name)
        if record is None:
            continue
        folder = name.removesuffix("fit.json")
        if isinstance(listed := record.get("files"), dict):
            listed |= {part: _sha256(files[folder + part]) for part in listed
                       if folder + part in files}  # fmt: skip
        record.pop("sha256", None)
        record["sha256"] = digest_of(record)
        files[name] = json.dumps(record).encode()


def add_strangers_file(files: Files) -> None:
    """What a run must neither remove nor read."""
    files["mlp/" + STRANGERS_FILE] = b"precious"


STRANGERS_FILE = "thesis.docx"


def _header(files: Files, name: str) -> dict[str, object] | None:
    try:
        value = json.loads(files[name])
    except (KeyError, ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


ANNOTATED = ("film-prior", "oracle-tree", "oracle-logistic")
"""The estimators that predict from annotations, so that no store fits them."""
STORE = (
    "stores info {x}", "stores verify {x}", "stores diff {x} {data}/final.zarr",
    "stores export {x} -o {out}/x.h5", "stores subset {x} --films tt0000002 -o {out}/x.zarr",
    "stores search {x} --text mirror",
)  # fmt: skip
RESUME = ("models run {data}/golden.toml -o {x.parent}/{x.stem}",)
SAVED = (*(name for name in ESTIMATORS if name not in ANNOTATED), "pipeline")
KINDS: dict[str, Kind] = {
    "manifest": Kind(
        "manifest",
        ("manifests check {x}", "manifests stats {x} --by-film", "manifests audit {x}",
         "manifests diff {x} {data}/eight"),
        500,
        ("manifest.json", "items.csv", "labels"),
    ),
    "splits": Kind(
        "manifest",
        ("manifests check {x}", "manifests show {x}", "manifests audit {x}"),
        200,
        ("splits", "runs"),
    ),
    "open store": Kind("open.zarr", (*STORE, "stores repair {x} --yes"), 300),
    "sealed open store": Kind("open.zarr", STORE, 100, seal=seal_store),
    "final store": Kind("final.zarr", (*STORE, "stores pack {x} -o {out}/x.zip"), 300),
    "sealed final store": Kind("final.zarr", STORE, 100, seal=seal_store),
    "packed store": Kind(
        "packed.zip",
        ("stores info {x}", "stores verify {x}", "stores unpack {x} -o {out}/x.zarr"),
        200,
    ),
    **{
        f"model {name}": Kind(
            f"models/{name}",
            ("models list {x}", "models predict {x} {data}/xclip.zarr -o {out}/x.csv",
             "models evaluate {x} {data}/xclip.zarr {data}/manifest --labels raw",
             "models explain {x} {data}/xclip.zarr tt0000001-003"),
            100,
            ("model",),
            seal_model,
        )
        for name in ("mlp", "pcbm-tree", "svm", "concept-vector")
    },
    **{
        f"saved {name}": Kind(
            f"saved/{name}", ("models predict {x} {data}/final.zarr -o {out}/x.csv",),
            50, ("model",), seal_model,
        )
        for name in SAVED
    },
    "run": Kind(
        "run",
        ("report {x} -o {out}/x.html", "models compare {x} --model mlp --model pcbm-tree"),
        300,
        ("run.json", "predictions", "clips", "expl", "history", "models.jsonl"),
        seal_run,
    ),
    "partial run": Kind("kept.partial", RESUME, 150),
    "sealed partial run": Kind("kept.partial", RESUME, 150, seal=seal_fits),
    "stranger's partial run": Kind("kept.partial", RESUME, 50, seal=add_strangers_file),
    "experiment": Kind("golden.toml", ("models run {x} -o {out}/run",), 250),
    "address": Kind(
        "address.toml", ("stores info {address}", "models run {x} -o {out}/run"), 150,
        change=forge_address, refused=True,
    ),
    "timelines": Kind(
        "timelines",
        ("annotations show {x}", "annotations project {x} --grid 60 -o {out}/x",
         "annotations export {x} --elan -o {out}/elan",
         "annotations export {x} --csv -o {out}/csv"),
        150,
    ),
    "elan": Kind("elan", ("annotations import elan {x} -o {out}/x",), 250),
    "segments": Kind("segments.csv", ("annotations import csv {x} -o {out}/x",), 150),
    "films": Kind(
        "films.csv", ("annotations import csv {data}/segments.csv --films {x} -o {out}/x",), 100
    ),
    "table": Kind("clips.csv", ("manifests import csv {x} -o {out}/x",), 150),
    "hdf5": Kind("theirs.h5", ("stores import hdf5 {x} --manifest {data}/eight -o {out}/x.zarr",),
                 200),
    "battery": Kind("battery.json", ("bias eat {x} --store {data}/words.zarr",), 150),
    "lexicon": Kind(
        "emotions.json", ("bias captions {data}/emotions.csv --minimum 0 --lexicon {x}",), 100,
    ),
}  # fmt: skip


def make_data(folder: Path) -> Path:
    """The golden data, and what the other kinds start from."""
    data = copy_data(folder)
    shutil.rmtree(data / "run")
    (data / "clips.csv").write_text(
        "id,film,media,start,end,level,concepts\na-1,tt0000001,a.mp4,0,2.5,Sure,Body|Look\n"
        "a-2,tt0000001,a.mp4,3,4,Easy Negative,\nb-1,tt0000002,b.mp4,,,Not Sure,Look\n"
    )
    experiment = (data / "golden.toml").read_text()
    (data / "address.toml").write_text(experiment.replace('"xclip.zarr"', f'"{data}/xclip.zarr"'))
    shipped = Path("manifests").resolve()
    shutil.copy(shipped / "lexicons/emotions.json", data)
    battery = {
        "format": "obygaze-battery", "format_version": 1, "name": "mine", "models": {"m": ["tiny"]},
        "sets": {"women": ["woman", "girl", "lady"], "men": ["man", "boy", "gentleman"]},
        "tests": [{"name": "a", "x": "women", "y": "men", "a": ["love", "peace"],
                   "b": ["hatred", "filth"], "published": {"m": {"d": 1, "significant": True}}}],
    }  # fmt: skip
    (data / "battery.json").write_text(json.dumps(battery))
    for command in (
        "models run {data}/golden.toml -o {data}/run",
        "annotations export {data}/timelines --elan -o {data}/elan",
        "stores export {data}/final.zarr -o {data}/theirs.h5",
    ):
        with patch.object(FinishedFits, "discard"):  # as if the run were killed at its end
            result = run_obygaze(*command.format(data=data).split())
        assert result.exit_code == 0, result.output
    (data / "run.partial").rename(data / "kept.partial")
    save_models(data)
    return data


def save_models(data: Path) -> None:
    """A saved model of each estimator of `SAVED`, of what ``final.zarr`` has."""
    store = open_store(data / "final.zarr")
    dice = np.random.default_rng(0)
    concepts, y = dice.integers(0, 2, (40, 3)), np.arange(40) % 2
    for name in SAVED:
        if name == "pipeline":
            model = make_pipeline(StandardScaler(), LogisticRegression())
        else:
            model = make_estimator(name, random_state=0)
        array = "frames" if reads_frames(model) else "native"
        shape = next(spec.shape for spec in store.specs if spec.name == array)
        X = dice.normal(size=(40, *shape)).astype(np.float32)
        model.fit(X, y, **({"concepts": concepts} if "concepts" in keywords(model.fit) else {}))
        features = {"array": array, "shape": list(shape), "pooling": None} | {
            key: store.attributes[key] for key in ("backbone", "preprocessing")
        }
        about = {"model": name, "estimator": name, "task": "EN vs S", "classes": ["EN", "S"],
                 "reads": "frames" if array == "frames" else "features", "seen": [],
                 "footage": {}, "features": features}  # fmt: skip
        save_model(model, data / "saved" / name, about)


def read_files(path: Path) -> Files:
    """A folder's files by their relative paths; a single file under an empty name."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            assert archive.testzip() is None
    if path.is_file():
        return {"": path.read_bytes()}
    return {
        file.relative_to(path).as_posix(): file.read_bytes()
        for file in sorted(path.rglob("*"))
        if file.is_file()
    }


def write_files(path: Path, files: Mapping[str, bytes]) -> None:
    """What `read_files` gave."""
    for name, content in files.items():
        file = path / name if name else path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
