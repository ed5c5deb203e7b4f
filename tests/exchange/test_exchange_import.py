"""Imports of clip files: by whose name, what is refused, and what is never run."""

from __future__ import annotations

import json
import os
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from obygaze_features.backbones.preprocess import CLIP_TORCHVISION
from obygaze_features.errors import StoreError, UsageError
from obygaze_features.manifests import Item, Items, Manifest
from obygaze_features.store import Status, Store, diff, finalise, open_store
from obygaze_features.store.import_features import import_features
from obygaze_features.store.provenance import read_recipe, unknown_parts
from tests.exchange.malice import Malice

N = 40
VALUES = np.random.default_rng(0).normal(size=(N, 6)).astype(np.float32)


def manifest(n: int = N) -> Manifest:
    items = [
        Item(f"tt{row % 3}-{row:03}", film=f"tt{row % 3}", media=f"tt{row % 3}_scene_{row}.avi")
        for row in range(n)
    ]
    return Manifest("scenes", Items.of(items), licence="CC0")


def done_and_failed(store: Store) -> tuple[int, int]:
    return int((store.status == Status.DONE).sum()), len(store.failures)


def write(path: Path, values: np.ndarray) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".npy":
        np.save(path, values)
    else:
        torch.save(torch.from_numpy(values), path)
    return path


def place(folder: Path, row: int, suffix: str) -> Path:
    return folder / f"tt{row % 3}" / f"tt{row % 3}_scene_{row}{suffix}"


@pytest.fixture(params=[".pth", ".npy"])
def suffix(request):
    return request.param


@pytest.fixture
def bring(suffix):
    def bring(pairs, *arguments, **options):
        return import_features(dict(pairs), *arguments, kind=suffix[1:], backbone="toy", **options)

    return bring


@pytest.fixture
def folder(tmp_path, suffix):
    for row in range(N):
        write(place(tmp_path / "features", row, suffix), VALUES[row])
    return tmp_path / "features"


def test_the_authors_folder_becomes_a_store(folder, bring, tmp_path):
    made = bring([("native", folder)], manifest(), tmp_path / "s.zarr")
    assert done_and_failed(made) == (N, 0)
    store = open_store(tmp_path / "s.zarr")
    np.testing.assert_array_equal(store.read("native", missing="nan"), VALUES)
    assert store.attributes["licence"] == "CC0"
    one = place(folder, 0, next(folder.rglob("*_0.*")).suffix)
    assert store.sources["tt0-000"].startswith(f"bytes={one.stat().st_size} head=")
    finalise(tmp_path / "s.zarr")


def test_what_nobody_said_is_recorded_as_unknown(folder, bring, tmp_path):
    bring([("native", folder)], manifest(), tmp_path / "s.zarr")
    about = open_store(tmp_path / "s.zarr").attributes
    assert about["backbone"] == {
        "name": "toy",
        "revision": None,
        "weights_sha256": "unknown:toy",
        "config": {},
    }
    assert (about["preprocessing"], about["precision"]) == ({"mode": "unknown"}, "unknown")


def test_what_is_missing_or_broken_is_named_and_the_rest_is_there(folder, bring, suffix, tmp_path):
    place(folder, 1, suffix).unlink()
    data = place(folder, 2, suffix).read_bytes()
    place(folder, 2, suffix).write_bytes(data[: len(data) // 2])
    place(folder, 3, suffix).write_bytes(b"")
    write(place(folder, 4, suffix), np.ones((2, 6), np.float32))
    write(place(folder, 5, suffix), VALUES[5].astype(np.float64))
    write(place(folder, 6, suffix), np.full(6, np.nan, np.float32))
    place(folder, 7, suffix).unlink()
    place(folder, 7, suffix).mkdir()
    write(folder / "tt2" / f"TT2_scene_8{suffix}", VALUES[8])
    place(folder, 9, suffix).unlink()
    os.mkfifo(place(folder, 9, suffix))
    write(place(folder, 10, suffix), np.array([True] * 6))
    made = bring([("native", folder)], manifest(), tmp_path / "s.zarr")
    assert done_and_failed(made) == (N - 10, 10)
    store = open_store(tmp_path / "s.zarr")
    reasons = store.failures
    assert reasons["tt1-001"] == f"no tt1/tt1_scene_1{suffix} in features"
    assert reasons["tt2-002"].startswith(f"features/tt2/tt2_scene_2{suffix}: it is no")
    assert reasons["tt0-003"].startswith(f"features/tt0/tt0_scene_3{suffix}: it is no")
    assert reasons["tt1-004"].endswith("it holds 2×6 float32, where native has 6 float32 a clip")
    assert reasons["tt2-005"].endswith("it holds 6 float64, where native has 6 float32 a clip")
    assert reasons["tt0-006"] == "native has NaN or infinity"
    assert reasons["tt1-007"] == f"no tt1/tt1_scene_7{suffix} in features"
    assert "both" in reasons["tt2-008"]
    assert reasons["tt0-009"].endswith("it is not a plain file")
    assert "type bool" in reasons["tt1-010"]
    assert store.status[[1, 2, 6]].tolist() == [2, 3, 4]
    np.testing.assert_array_equal(store.read("native", missing="nan")[11:], VALUES[11:])


def test_an_odd_file_that_comes_first_does_not_say_what_all_are(folder, bring, suffix, tmp_path):
    write(place(folder, 0, suffix), np.ones((3, 2), np.float64))
    write(place(folder, 20, suffix), np.ones((3, 2), np.float64))
    place(folder, 1, suffix).write_bytes(b"")
    made = bring([("native", folder)], manifest(), tmp_path / "s.zarr")
    assert done_and_failed(made) == (N - 3, 3)
    reason = open_store(tmp_path / "s.zarr").failures["tt0-000"]
    assert reason.endswith("it holds 3×2 float64, where native has 6 float32 a clip")


@pytest.mark.parametrize("lengths", [(3, 4, 3, 4), (3, 4, 3, 4, 5), (3, 4, 3, 5, 6)], ids=str)
def test_files_of_which_most_are_not_alike_make_no_store(lengths, bring, suffix, tmp_path):
    for row, length in enumerate(lengths):
        write(place(tmp_path / "f", row, suffix), np.ones(length, np.float32))
    with pytest.raises(StoreError) as problem:
        bring([("native", tmp_path / "f")], manifest(5), tmp_path / "s.zarr")
    assert str(problem.value).startswith(
        f"f/tt0/tt0_scene_0{suffix} holds 3 float32 and f/tt1/tt1_scene_1{suffix} holds 4 float32, "
    )
    assert not (tmp_path / "s.zarr").exists()


def test_an_import_goes_on_and_tries_again_when_told(folder, bring, suffix, tmp_path):
    path = tmp_path / "s.zarr"
    hidden = place(folder, 1, suffix).rename(tmp_path / "aside")
    broken = place(folder, 35, suffix)
    whole = broken.read_bytes()
    broken.write_bytes(b"")
    bring([("native", folder)], manifest(), path)
    hidden.rename(place(folder, 1, suffix))
    broken.write_bytes(whole)
    assert bring([("native", folder)], manifest(), path).failures.keys() == {"tt1-001", "tt2-035"}
    assert bring([("native", folder)], manifest(), path, retry_failed=True).failures == {}
    bring([("native", folder)], manifest(), tmp_path / "once/s.zarr")
    assert diff(open_store(path), open_store(tmp_path / "once/s.zarr")).identical
    np.testing.assert_array_equal(open_store(path).read("native", missing="nan"), VALUES)
    with pytest.raises(StoreError, match="made with other items"):
        bring([("native", folder)], manifest(5), path)


def test_blocks_that_were_there_are_left_alone(folder, bring, tmp_path):
    path = tmp_path / "s.zarr"
    bring([("native", folder)], manifest(), path)
    (path / "blocks/000001.json").unlink()  # as if it had been killed before the second block
    before = (path / "blocks/000000.json").stat()
    assert bring([("native", folder)], manifest(), path).status.tolist() == [1] * N
    assert (path / "blocks/000000.json").stat().st_mtime_ns == before.st_mtime_ns


def test_several_arrays_from_several_folders(folder, bring, suffix, tmp_path):
    frames = np.random.default_rng(1).normal(size=(N, 2, 3)).astype(np.float16)
    for row in range(N):
        write(place(tmp_path / "frames", row, suffix), frames[row : row + 1])  # a batch of one
    place(tmp_path / "frames", 3, suffix).unlink()
    both = [("native", folder), ("frames", tmp_path / "frames")]
    bring(both, manifest(), tmp_path / "s.zarr")
    store = open_store(tmp_path / "s.zarr")
    assert store.failures == {"tt0-003": f"no tt0/tt0_scene_3{suffix} in frames"}
    np.testing.assert_array_equal(store["tt1-001"]["frames"], frames[1])
    assert store.sources["tt1-001"].count("head=") == 2


def test_spans_are_found_by_their_id(bring, suffix, tmp_path):
    """They share the media that they are spans of."""
    items = [
        Item("film-a", media="film.mp4", start=0, end=1),
        Item("film-b", media="film.mp4", start=1, end=2),
        Item("text-1", kind="text", text="words"),
    ]
    for row, item in enumerate(items):
        write(tmp_path / "f" / f"{item.id}{suffix}", VALUES[row])
    write(tmp_path / "f" / f"film{suffix}", VALUES[9])
    bring([("native", tmp_path / "f")], Manifest("m", Items.of(items)), tmp_path / "s.zarr")
    store = open_store(tmp_path / "s.zarr")
    np.testing.assert_array_equal(store.read("native", missing="nan"), VALUES[:3])


def test_two_items_never_share_a_file(bring, suffix, tmp_path):
    """Nor do they when the second is looked for alone, as a later run does."""
    items = [Item(f"{film}-1", film=film, media="001.mp4") for film in "ABC"]
    items += [Item("A-2", film="A", media="001.mp4")]
    one = Manifest("m", Items.of(items))
    write(tmp_path / f"f/001{suffix}", VALUES[0])
    write(tmp_path / f"f/C/001{suffix}", VALUES[2])
    for retry in (False, True):
        bring([("native", tmp_path / "f")], one, tmp_path / "s.zarr", retry_failed=retry)
        store = open_store(tmp_path / "s.zarr")
        assert store.failures == {
            "B-1": f"f/001{suffix} was taken by A-1 too; put it in B/",
            "A-2": f"f/001{suffix} was taken by A-1 too; "
            f"name each by its id: A-1{suffix}, A-2{suffix}",
        }
    np.testing.assert_array_equal(store["C-1"]["native"], VALUES[2])


@pytest.mark.parametrize(
    ("dtype", "kept"),
    [("int64", "int32"), ("uint8", "int32"), (">f4", "float32"), ("f2", "float16")],
)
def test_types_of_numbers(dtype, kept, tmp_path):
    values = np.arange(4).astype(dtype)
    write(tmp_path / "f/clip.npy", values)
    one = Manifest("m", Items.of([Item("clip", media="clip.mp4")]))
    import_features(tmp_path / "f", one, tmp_path / "s.zarr")
    row = open_store(tmp_path / "s.zarr")["clip"]["native"]
    assert (row.dtype, row.tolist()) == (kept, [0, 1, 2, 3])


def save(held: object, path: Path) -> None:
    torch.save(held, path)


def load_one(tmp_path: Path, file: Path) -> str:
    """What becomes of a file beside a sound one: the reason, or nothing if it is done."""
    write(file.parent / "sound.pth", VALUES[0])
    items = [Item("sound", media="sound.mp4"), Item("odd", media="odd.mp4")]
    import_features(file.parent, Manifest("m", Items.of(items)), tmp_path / "s.zarr", kind="pth")
    return open_store(tmp_path / "s.zarr").failures.get("odd", "")


def test_bfloat16_files_are_widened(tmp_path):
    (tmp_path / "f").mkdir()
    save(torch.arange(3072).bfloat16(), tmp_path / "f/a.pth")
    manifest = Manifest("m", Items.of([Item("a", media="a.mp4")]))
    store = import_features(tmp_path / "f", manifest, tmp_path / "s.zarr", kind="pth")
    expected = torch.arange(3072).bfloat16().float().numpy()
    np.testing.assert_array_equal(store.read("native")[0], expected)


@pytest.mark.parametrize(
    ("held", "reason"),
    [
        ({"native": torch.ones(6), "other": torch.ones(2)}, ""),
        (torch.nn.Parameter(torch.ones(6)), ""),
        (torch.ones(1, 6), ""),
        (torch.ones(6, 2).t()[0], ""),
        ({"other": torch.ones(6)}, "a dictionary without native; it has 'other'"),
        ({"a\nb": torch.ones(6)}, "without native; it has 'a\\nb'"),
        ({}, "without native; it has nothing"),
        ([torch.ones(6)], "no plain tensor but a list"),
        (torch.ones(6).to_sparse(), "no plain tensor"),
        (torch.ones(6).bfloat16(), ""),
        (torch.ones(1).expand(6), ""),
        (torch.ones(1).expand(10**12), "claims to hold more than the file has"),
        (torch.tensor(1.0), "no row of numbers"),
        (torch.ones(6, dtype=torch.complex64), "type complex64"),
        (torch.empty(6, device="meta"), "no plain tensor"),
        (torch.ones(6).to(torch.float8_e5m2), "type torch.float8_e5m2"),
    ],
    ids=str,
)
def test_what_a_pth_file_may_hold(held, reason, tmp_path):
    (tmp_path / "f").mkdir()
    save(held, tmp_path / "f/odd.pth")
    found = load_one(tmp_path, tmp_path / "f/odd.pth")
    assert reason in found
    assert bool(found) == bool(reason)


def test_a_malicious_pickle_is_never_run(tmp_path, monkeypatch):
    """In every place where an importer looks, and where somebody might think that it does."""
    trace, folder = tmp_path / "trace", tmp_path / "f"
    folder.mkdir()
    torch.save(Malice(trace), folder / "zip.pth")
    torch.save({"native": torch.ones(6), "x": Malice(trace)}, folder / "entry.pth")
    torch.save(Malice(trace), folder / "legacy.pth", _use_new_zipfile_serialization=False)
    (folder / "raw.pth").write_bytes(pickle.dumps(Malice(trace)))
    with (
        zipfile.ZipFile(folder / "zip.pth") as stored,
        zipfile.ZipFile(folder / "compressed.pth", "w", zipfile.ZIP_DEFLATED) as archive,
    ):
        for name in stored.namelist():
            archive.writestr(name, stored.read(name))
    np.save(folder / "object.npy", np.array([Malice(trace)] * 6, object), allow_pickle=True)
    (folder / "raw.npy").write_bytes(pickle.dumps(Malice(trace)))
    np.savez(folder / "zip.npz", x=np.array([Malice(trace)], object), allow_pickle=True)
    (folder / "zip.npz").rename(folder / "zip.npy")
    # Each of them would, if it were unpickled.
    for load in (
        lambda: torch.load(folder / "entry.pth", weights_only=False),
        lambda: torch.load(folder / "legacy.pth", weights_only=False),
        lambda: pickle.loads((folder / "raw.pth").read_bytes()),
        lambda: np.load(folder / "object.npy", allow_pickle=True),
    ):
        load()
        trace.rmdir()
    write(folder / "sound.pth", VALUES[0])
    write(folder / "sound.npy", VALUES[0])
    for suffix in (".pth", ".npy"):
        names = sorted(path.stem for path in folder.glob(f"*{suffix}"))
        items = Items.of([Item(name, media=f"{name}.mp4") for name in names])
        path = tmp_path / f"{suffix[1:]}.zarr"
        import_features(folder, Manifest("m", items), path, kind=suffix[1:])
        assert not trace.exists()
        store = open_store(path)
        assert done_and_failed(store) == (1, len(names) - 1)
        assert set(store.failures) == set(names) - {"sound"}
        assert all(code == Status.UNREADABLE for code in store.status if code != Status.DONE)
        if suffix == ".pth":
            assert "more than tensors" in store.failures["zip"]
            assert "it is compressed" in store.failures["compressed"]
            assert "before version 1.6" in store.failures["legacy"]


def test_a_folder_of_nothing_makes_no_store(tmp_path):
    (tmp_path / "f").mkdir()
    with pytest.raises(StoreError, match=r"none of the 40 items .* no tt0/tt0_scene_0\.pth in f"):
        import_features(tmp_path / "f", manifest(), tmp_path / "s.zarr", kind="pth")
    place(tmp_path / "f", 0, ".pth").parent.mkdir()
    place(tmp_path / "f", 0, ".pth").write_text("x")
    with pytest.raises(StoreError, match=r"can be read; f/tt0/tt0_scene_0\.pth: it is not a PyTo"):
        import_features(tmp_path / "f", manifest(), tmp_path / "s.zarr")
    assert not (tmp_path / "s.zarr").exists()
    with pytest.raises(UsageError, match="is not a folder"):
        import_features(tmp_path / "nowhere", manifest(), tmp_path / "s.zarr", kind="pth")
    with pytest.raises(UsageError, match=r"ends in \.zarr"):
        import_features(tmp_path / "f", manifest(), tmp_path / "s")
    with pytest.raises(UsageError, match=r"x\.mat does not exist"):
        import_features(tmp_path / "x.mat", manifest(), tmp_path / "s.zarr")
    (tmp_path / "x.mat").touch()
    with pytest.raises(UsageError, match="unknown kind of features"):
        import_features(tmp_path / "x.mat", manifest(), tmp_path / "s.zarr")


def test_a_recipe_in_a_file(tmp_path):
    (tmp_path / "made.toml").write_text(
        'precision = "float16"\n[backbone]\nname = "vivit"\n'
        f'weights_sha256 = "{"ab" * 32}"\n[preprocessing]\nmode = "author"\ncrop = [224, 224]\n'
    )
    provenance = read_recipe(tmp_path / "made.toml")
    assert provenance.backbone["weights_sha256"] == "ab" * 32
    assert provenance.preprocessing == {"mode": "author", "crop": [224, 224]}
    assert (provenance.precision, unknown_parts(vars(provenance))) == ("float16", [])
    (tmp_path / "made.json").write_text('{"backbone": {"name": "vivit"}}')
    provenance = read_recipe(tmp_path / "made.json")
    assert provenance.backbone["weights_sha256"] == "unknown:vivit"
    assert unknown_parts(vars(provenance)) == ["weights", "preprocessing", "precision"]


def test_a_recipe_may_say_what_an_extraction_would(tmp_path):
    made = {"sampling": "all", **CLIP_TORCHVISION.attributes()}
    (tmp_path / "made.json").write_text(json.dumps({"preprocessing": made}))
    assert read_recipe(tmp_path / "made.json").preprocessing == json.loads(json.dumps(made))


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("a.toml", "x", "not valid TOML"),
        ("a.json", "{", "not valid TOML, or JSON"),
        ("a.json", "[]", "not a table with backbone, preprocessing"),
        ("a.toml", "precison = 'x'", "unknown key 'precison'; did you mean precision"),
        ("a.toml", "[backbone]\nnames = 'x'", "unknown key of backbone 'names'; did you mean name"),
        ("a.toml", "[preprocessing]\nsmapling = 'x'", "'smapling'; did you mean sampling"),
        ("a.toml", "[preprocessing]\nprecision = 'x'", "unknown key of preprocessing 'precision'"),
        ("a.toml", "backbone = 'x'", "backbone must be a table"),
        ("a.toml", "[backbone]\nname = 1", "name must be text"),
        ("a.toml", "[backbone]\nconfig = 1", "config must be a table"),
        ("a.toml", "[backbone]\nweights_sha256 = 'ab'", "64 hexadecimal digits"),
        ("a.toml", "[preprocessing]\nwhen = 2020-01-01", "not valid TOML"),
    ],
)
def test_recipes_that_are_not_right(name, text, why, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(StoreError, match=why):
        read_recipe(tmp_path / name)
    with pytest.raises(UsageError, match="cannot be read"):
        read_recipe(tmp_path / "nowhere.toml")
