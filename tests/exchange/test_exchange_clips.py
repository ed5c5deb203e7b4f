"""Imports of one file per clip: which files match, what is refused, and that none is executed."""

import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

import obygaze_features as of
from obygaze_features.manifests import Item, Items, Manifest
from tests.kit.files import write
from tests.kit.store import Malice

N = 16
pytestmark = pytest.mark.filterwarnings("ignore::obygaze_features.imports.FailedRows")
VALUES = np.random.default_rng(0).normal(size=(N, 6)).astype(np.float32)


def named(*names: str) -> Manifest:
    items = [Item(name, media=f"{name}.mp4") for name in names]
    return Manifest("m", Items.of(items))


def save(path: Path, values: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".npy":
        np.save(path, values)
    else:
        torch.save(torch.from_numpy(values) if isinstance(values, np.ndarray) else values, path)
    return path


@pytest.mark.parametrize("suffix", [".pth", ".npy"])
def test_a_folder_of_clips_becomes_a_store(suffix, tmp_path):
    items = []
    folder = tmp_path / "features"
    files = []
    for row in range(N):
        film = f"tt{row % 3}"
        scene = f"{film}_scene_{row}"
        id_ = f"{film}-{row:03}"
        items.append(Item(id_, film=film, media=f"{scene}.avi"))
        files.append(folder / film / f"{scene}{suffix}")
        save(files[row], VALUES[row])
    half = files[2].read_bytes()
    for row in (0, 6, 7, 9):
        files[row].unlink()
    os.mkfifo(files[0])  # the first that can be read has the shape of all
    files[2].write_bytes(half[: len(half) // 2])
    files[3].write_bytes(b"")
    save(files[4], np.ones((2, 6), np.float32))
    save(files[5], VALUES[5].astype(np.float64))
    save(files[6], np.full(6, np.nan, np.float32))
    files[7].mkdir()
    save(folder / "tt2" / f"TT2_scene_8{suffix}", VALUES[8])
    manifest = Manifest("scenes", Items.of(items))
    store = of.import_features(folder, manifest, tmp_path / "s.zarr", backbone="toy")

    assert store.done_ids() == [store.ids[1], *store.ids[10:]]
    rows = store.read("native", missing="drop")
    np.testing.assert_array_equal(rows[1:], VALUES[10:])
    assert store.attributes["backbone"]["weights_sha256"] == "unknown:toy"
    for item, reason in {
        "tt0-000": f"features/tt0/tt0_scene_0{suffix} is not a regular file",
        "tt2-002": f"native: features/tt2/tt2_scene_2{suffix}",
        "tt0-003": f"native: features/tt0/tt0_scene_3{suffix}",
        "tt1-004": "(2, 6)",
        "tt2-005": "float64",
        "tt0-006": "native has a value that cannot be stored as float32",
        "tt1-007": f"name its file tt1/tt1-007{suffix}",
        "tt2-008": f"name its file tt2/tt2-008{suffix}",
        "tt0-009": f"name its file tt0/tt0-009{suffix}",
    }.items():
        assert reason in store.failures[item]


def test_two_items_never_share_a_file(tmp_path):
    """Spans of a film and texts are found by id."""
    items = [Item(f"{film}-1", film=film, media="001.mp4") for film in "ABC"]
    items += [Item("A-2", film="A", media="001.mp4")]
    items += [Item("A-3", media="film.mp4", start=0, end=1), Item("A-4", "text", text="words")]
    for row, name in enumerate(["001", "C/001", "A-3", "A-4", "film"]):
        save(tmp_path / f"f/{name}.npy", VALUES[row])
    manifest = Manifest("m", Items.of(items))
    store = of.import_features(tmp_path / "f", manifest, tmp_path / "s.zarr")
    assert store.failures.keys() == {"B-1", "A-2"}
    assert "name its file B/B-1.npy" in store.failures["B-1"]
    rows = store.read("native", ["C-1", "A-3", "A-4"])
    np.testing.assert_array_equal(rows, VALUES[1:4])
    with pytest.raises(of.ObygazeError, match=r"no item can be read \(1 tried\): f has no file"):
        of.import_features(tmp_path / "f", named("gone"), tmp_path / "t.zarr")


@pytest.mark.parametrize(
    ("dtype", "kept_as"),
    [("uint8", "int32"), (">f4", "float32"), ("f2", "float16")],
)
def test_imported_numbers_get_a_supported_type(dtype, kept_as, tmp_path):
    save(tmp_path / "f/clip.npy", np.arange(4).astype(dtype))
    store = of.import_features(tmp_path / "f", named("clip"), tmp_path / "s.zarr")
    row = store["clip"]["native"]
    assert (row.dtype, row.tolist()) == (kept_as, [0, 1, 2, 3])


def test_pth_files_may_hold_only_plain_tensors(tmp_path):
    tensor = torch.ones(6)
    evil = Malice(tmp_path / "trace")
    contents = {
        "dictionary": ({"native": tensor, "other": torch.ones(2)}, ""),
        "strides": (torch.ones(6, 2).t()[0], ""),
        "bfloat16": (tensor.bfloat16() + 2**-7, ""),
        "claims": (torch.ones(1).expand(10**12), "claims more numbers than it can hold"),
        "other": ({"other": tensor}, "no tensor of numbers for this array"),
        "number": (torch.tensor(1.0), "holds no row of numbers"),
        "complex": (torch.ones(6, dtype=torch.complex64), "got complex64"),
        "program": (evil, "such as code"),
        "entry": ({"native": tensor, "x": evil}, "such as code"),
        "compressed": (evil, "it is compressed"),
        "legacy": (evil, "not a file of PyTorch 1.6 or later"),
    }
    for name, (content, _) in contents.items():
        save(tmp_path / f"f/{name}.pth", content)
    with zipfile.ZipFile(tmp_path / "f/compressed.pth") as stored:
        files = {name: stored.read(name) for name in stored.namelist()}
    with zipfile.ZipFile(tmp_path / "f/compressed.pth", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    torch.save(evil, tmp_path / "f/legacy.pth", _use_new_zipfile_serialization=False)
    for name in ("program", "entry", "legacy"):  # each of them would, if it were unpickled
        torch.load(tmp_path / f"f/{name}.pth", weights_only=False)
        evil.trace.rmdir()
    store = of.import_features(tmp_path / "f", named(*contents), tmp_path / "s.zarr")
    assert not evil.trace.exists()
    reasons = {name: reason for name, (_, reason) in contents.items() if reason}
    assert store.failures.keys() == reasons.keys()
    for name, reason in reasons.items():
        assert reason in store.failures[name]
    assert store["strides"]["native"].tolist() == [1] * 6
    assert (store["bfloat16"]["native"] == 1 + 2**-7).all()  # widened, not rounded


def test_a_recipe_is_read_from_a_file(tmp_path, obygaze):
    lines = ['precision = "float16"', "[backbone]", 'name = "vivit"', "[preprocessing]"]
    write(tmp_path / "made.toml", *lines, 'mode = "author"', "crop = [2, 2]")
    save(tmp_path / "f/clip.npy", VALUES[0])
    named("clip").save(tmp_path / "manifest")
    words = (tmp_path / "f", "--manifest", tmp_path / "manifest", "-o", tmp_path / "s.zarr")
    result = obygaze("stores", "import", *words, "--recipe", tmp_path / "made.toml", code=0)
    assert result.stdout.splitlines()[-1] == "unknown  weights"
    attributes = of.open_store(tmp_path / "s.zarr").attributes
    assert attributes["backbone"]["weights_sha256"] == "unknown:vivit"
    assert attributes["preprocessing"] == {"mode": "author", "crop": [2, 2]}
    assert attributes["precision"] == "float16"
