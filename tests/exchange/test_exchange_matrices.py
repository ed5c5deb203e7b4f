"""Features in one file for all clips, as clip-retrieval and most labs keep them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch_file

from obygaze_features.errors import UsageError
from obygaze_features.store import diff, open_store
from obygaze_features.store.import_features import import_features
from tests.kit import store as toys
from tests.kit.store import numbers, plain_manifest

N, D, ABSENT = 40, 6, 7
"""Clips, width, and the clip without a row."""
ROWS = numbers(N, (D,), "float32")
FRAMES = numbers(N, (3, D), "float16")


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A manifest of 40 clips, and ids and rows of all but one of them, in another order."""
    plain_manifest(N).save(tmp_path / "manifest")
    monkeypatch.chdir(tmp_path)
    return tmp_path


ORDER = [row for row in np.random.default_rng(0).permutation(N).tolist() if row != ABSENT]
IDS = [f"tt{row:03}" for row in ORDER]


@pytest.fixture
def bring(obygaze, there):
    """Import a file; gives the store, where the command is expected to end well."""

    def run(*arguments, code=3):
        texts = [str(argument) for argument in arguments]
        result = obygaze("stores", "import", *texts, "--manifest", "manifest", "-o", "made.zarr")
        assert result.exit_code == code, result.output
        return open_store("made.zarr") if code in (0, 3) else result

    return run


def check(store, **arrays):
    assert set(store.arrays) == set(arrays)
    for name, rows in arrays.items():
        have = store.read(name, IDS)
        np.testing.assert_array_equal(have, rows[ORDER])
        assert have.dtype == rows.dtype
    assert store.failures == {f"tt{ABSENT:03}": store.failures[f"tt{ABSENT:03}"]}
    assert "it is not in X." in store.failures[f"tt{ABSENT:03}"]


def write_ids(name: str) -> None:
    if name.endswith(".npy"):
        np.save(name, np.array(IDS, "S" if name == "bytes.npy" else None))
    elif name == "id-and-more.csv":
        lines = [f"{one},{number}" for number, one in enumerate(IDS)]
        Path(name).write_text("\ufeffID,number\r\n" + "\r\n".join(lines), encoding="utf-8")
    else:
        Path(name).write_text("\n".join(IDS), encoding="utf-8")


@pytest.mark.parametrize("ids", ["ids.txt", "ids.csv", "id-and-more.csv", "ids.npy", "bytes.npy"])
def test_a_numpy_matrix_with_ids_becomes_a_store(bring, ids):
    np.save("X.npy", ROWS[ORDER])
    write_ids(ids)
    store = bring("npy", "X.npy", "--ids", ids, "--backbone", "vivit")
    check(store, native=ROWS)
    assert store.attributes["backbone"]["name"] == "vivit"


def test_several_numpy_matrices_are_several_arrays(bring):
    np.save("X.npy", ROWS[ORDER])
    np.save("F.npy", FRAMES[ORDER])
    write_ids("ids.txt")
    check(bring("npy", "native=X.npy", "frames=F.npy", "--ids", "ids.txt"), native=ROWS,
          frames=FRAMES)  # fmt: skip


def test_rows_are_in_order_only_where_it_is_said(bring):
    np.save("X.npy", ROWS)
    refused = bring("npy", "X.npy", code=2)
    assert "X.npy does not say whose its rows are; give --ids FILE" in refused.stderr
    store = bring("npy", "X.npy", "--in-order", code=0)
    np.testing.assert_array_equal(store.read("native", missing="nan"), ROWS)


def test_bfloat16_tensors_are_read_as_float32(bring):
    write_ids("ids.txt")
    rounded = torch.from_numpy(ROWS).bfloat16()
    save_torch_file({"native": rounded[ORDER].contiguous()}, "X.safetensors")
    check(bring("safetensors", "X.safetensors", "--ids", "ids.txt"), native=rounded.float().numpy())


@pytest.mark.parametrize("kind", ["one", "several", "by id"])
def test_safetensors_become_a_store(bring, kind):
    rows = np.ascontiguousarray(ROWS[ORDER])
    frames = np.ascontiguousarray(FRAMES[ORDER])
    write_ids("ids.txt")
    ids = ["--ids", "ids.txt"]
    if kind == "one":
        save_file({"features": rows, "mean": rows.mean(0)}, "X.safetensors")
    elif kind == "several":
        save_file({"native": rows, "frames": frames}, "X.safetensors")
    else:
        save_file(dict(zip(IDS, rows, strict=True)), "X.safetensors")
        ids = []
    store = bring("safetensors", "X.safetensors", *ids)
    check(store, native=ROWS, **({"frames": FRAMES} if kind == "several" else {}))


def test_a_tensor_unlike_the_others_is_a_failed_row(bring):
    tensors = dict(zip(IDS, np.ascontiguousarray(ROWS[ORDER]), strict=True))
    odd, half, good = sorted(IDS)[:3]
    tensors |= {odd: np.zeros((2, D), np.float32), half: np.zeros(D, np.float16)}
    save_file(tensors, "X.safetensors")
    store = bring("safetensors", "X.safetensors")
    np.testing.assert_array_equal(store.read("native", [good])[0], tensors[good])
    assert set(store.failures) == {odd, half, f"tt{ABSENT:03}"}
    assert "it holds 2×6 float32, where most tensors have 6 float32" in store.failures[odd]
    assert "it holds 6 float16" in store.failures[half]


def test_a_number_for_each_row_is_no_array(bring):
    rows = np.ascontiguousarray(ROWS[ORDER])
    write_ids("ids.txt")
    save_file({"features": rows, "labels": rows[:, 0].copy()}, "X.safetensors")
    check(bring("safetensors", "X.safetensors", "--ids", "ids.txt"), native=ROWS)


@pytest.mark.parametrize("suffix", ["safetensors", "parquet", "h5"])
def test_only_npy_and_pth_take_several_files(there, suffix):
    sources = {"native": f"X.{suffix}", "frames": f"F.{suffix}"}
    for name in sources.values():
        Path(name).touch()
    with pytest.raises(UsageError, match=f"X.{suffix}: one .* has all arrays"):
        import_features(sources, plain_manifest(N), "made.zarr")


@pytest.mark.parametrize("options", [{"ids": IDS}, {"in_order": True}, {"ids": Path("ids.txt")}])
def test_ids_of_a_file_that_has_its_own_are_refused(there, options):
    for name in ("X.h5", "X.parquet"):
        Path(name).touch()
        with pytest.raises(UsageError, match=name):
            import_features(name, plain_manifest(N), "made.zarr", **options)


def test_no_source_is_one_line(there):
    with pytest.raises(UsageError, match="no source"):
        import_features({}, plain_manifest(N), "made.zarr")


@pytest.mark.parametrize("kind", ["fixed", "lists", "columns"])
def test_a_parquet_table_becomes_a_store(bring, kind):
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = ROWS[ORDER]
    columns = {"clip": IDS, "label": list(range(len(IDS)))}
    if kind == "columns":
        columns |= {f"f{axis}": rows[:, axis] for axis in range(D)}
    elif kind == "lists":
        columns["embedding"] = pa.array(list(rows), pa.list_(pa.float32()))
    else:
        columns["native"] = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), D)
    parquet.write_table(pa.table(columns), "X.parquet")
    assert "it has clip, label" in bring("parquet", "X.parquet", code=2).stderr
    check(bring("parquet", "X.parquet", "--ids", "clip"), native=ROWS)


def test_an_exported_table_comes_back(obygaze, tmp_path):
    path = toys.a_store(tmp_path / "toy.zarr")
    toys.a_manifest().save(tmp_path / "manifest")
    out = tmp_path / "toy.parquet"
    assert obygaze("stores", "export", path, "-o", out, "--arrays", "native,frames").exit_code == 0
    made = obygaze(
        "stores", "import", "parquet", out, "--manifest", tmp_path / "manifest",
        "-o", tmp_path / "back/toy.zarr", "--json",
    )  # fmt: skip
    assert json.loads(made.stdout)["done"] == 17
    found = diff(open_store(path), open_store(tmp_path / "back/toy.zarr"))
    assert not {"backbone", "preprocessing", "precision"} & set(found.attributes)
    assert [(one.n, one.equal) for one in found.rows.values()] == [(17, 17)] * 2


def test_an_import_of_a_matrix_goes_on(bring):
    np.save("X.npy", ROWS[ORDER])
    write_ids("ids.txt")
    bring("npy", "X.npy", "--ids", "ids.txt")
    np.save("X.npy", ROWS)
    again = bring("npy", "X.npy", "--in-order", "--retry-failed", code=0)
    np.testing.assert_array_equal(again.read("native", missing="nan"), ROWS)


class Bomb:
    def __reduce__(self):
        return Path.touch, (Path("exploded"),)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["npy", "objects.npy", "--in-order"], "objects.npy cannot be read as NumPy"),
        (["npy", "X.npy", "--ids", "objects.npy"], "objects.npy cannot be read as ids"),
        (["npy", "X.npy", "--ids", "nowhere.txt"], "nowhere.txt does not exist"),
        (["npy", "X.npy", "--ids", "latin.npy"], "latin.npy cannot be read as ids"),
        (["npy", "empty.npy", "--ids", "empty.txt"], "empty.npy has no rows"),
        (["npy", "X.npy", "--ids", "short.txt"], "native has 40 rows for 2 ids"),
        (["npy", "X.npy", "--ids", "twice.txt"], "two rows for 'tt001'"),
        (["npy", "X.npy", "--ids", "others.txt"], "like 'a0.mp4', those of the manifest like 'tt"),
        (["npy", "X.npy", "--ids", "wide.csv"], "wide.csv: it has no column id (got clip, label)"),
        (["npy", "flat.npy", "--in-order"], "native is not a matrix"),
        (["npy", "manifest", "--in-order"], "are for one file with all rows"),
        (["safetensors", "X.npy", "--in-order"], "X.npy cannot be read as safetensors"),
        (["parquet", "X.npy"], "X.npy cannot be read as Parquet"),
    ],
)
def test_what_is_no_matrix_of_the_items_is_one_line(bring, there, arguments, said):
    np.save("X.npy", ROWS)
    np.save("flat.npy", ROWS[:, 0])
    np.save("latin.npy", np.array(["é".encode("latin-1")]))
    np.save("empty.npy", ROWS[:0])
    Path("empty.txt").write_text("")
    np.save("objects.npy", np.array([Bomb()] * N, object), allow_pickle=True)
    Path("short.txt").write_text("tt001\ntt002\n")
    Path("twice.txt").write_text("tt001\n" * N)
    Path("others.txt").write_text("\n".join(f"a{row}.mp4" for row in range(N)))
    Path("wide.csv").write_text("clip,label\ntt001,1\n")
    texts = [str(argument) for argument in arguments]
    if "parquet" in texts:
        pytest.importorskip("pyarrow")
    result = bring(*texts, code=2 if said.startswith(("nowhere", "are for")) else 1)
    assert said in result.stderr
    assert len(result.stderr.splitlines()) <= 3
    assert not Path("made.zarr").exists()
    assert not Path("exploded").exists()
