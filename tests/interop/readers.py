"""Read our files with other people's programs: ``readers.py FOLDER URL [READER...]``.

FOLDER is what `offer.py` wrote, and URL serves its stores. Each reader compares every value with
ours, type, shape and bits, and gets a line of the table. Nothing of obygaze is imported, so that
this runs in any environment; a reader whose package is missing says so.
"""

import json
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

STORES = ("pictures", "words")
Pair = tuple[str, bool]
"""What was read, and whether it equals ours."""


def same(values: object, expected: np.ndarray) -> bool:
    """Return True for equal types, shapes and values; NaN equals NaN."""
    array = np.asarray(values)
    if array.dtype != expected.dtype or array.shape != expected.shape:
        return False
    return np.array_equal(array, expected, equal_nan=array.dtype.kind == "f")


def expected_arrays(folder: Path, store: str) -> Iterator[tuple[str, np.ndarray]]:
    """Yield a store's arrays by name, as we read them."""
    for path in sorted((folder / "expected" / store).glob("*.npy")):
        yield path.stem, np.load(path)


def expected_ids(folder: Path, store: str) -> list[str]:
    """Return the ids of a store's rows."""
    return json.loads((folder / "expected" / store / "ids.json").read_text())


def compare_group(
    folder: Path, store: str, label: str, read: Callable[[str], object]
) -> Iterator[Pair]:
    """Compare each array that `read` returns, and the ids decoded from their bytes."""
    for name, expected in expected_arrays(folder, store):
        yield f"{label}/{name}", same(read(name), expected)
    rows = np.asarray(read("ids"))
    ids = [bytes(row).rstrip(b"\0").decode() for row in rows]
    yield f"{label}/ids", ids == expected_ids(folder, store)


def read_zarr(folder: Path, url: str) -> Iterator[Pair]:
    """Read folders and zip files, and over HTTP, with zarr-python."""
    import zarr

    for name in STORES:
        path = folder / "stores" / name
        packed = zarr.storage.ZipStore(f"{path}.zip", mode="r")
        for source in (f"{path}.zarr", packed, f"{url}/{name}.zarr"):
            group = zarr.open_group(source, mode="r")
            yield from compare_group(folder, name, str(source), lambda a, g=group: g[a][:])


def read_tensorstore(folder: Path, url: str) -> Iterator[Pair]:
    """Read folders, and over HTTP, with tensorstore."""
    import tensorstore

    def reader(**kvstore: str) -> Callable[[str], object]:
        def read(array: str) -> object:
            path = f"{kvstore['path']}/{array}"
            spec = {"driver": "zarr3", "kvstore": kvstore | {"path": path}}
            return tensorstore.open(spec).result().read().result()

        return read

    for name in STORES:
        path = f"{folder}/stores/{name}.zarr"
        yield from compare_group(folder, name, path, reader(driver="file", path=path))
        served = reader(driver="http", base_url=url, path=f"/{name}.zarr")
        yield from compare_group(folder, name, f"{url}/{name}", served)


def read_xarray(folder: Path, _: str) -> Iterator[Pair]:
    """Read with xarray, both eagerly and in dask chunks."""
    import xarray

    for name in STORES:
        path = f"{folder}/stores/{name}.zarr"
        for chunks in (None, {}):
            dataset = xarray.open_zarr(path, chunks=chunks, decode_cf=False)
            label = f"{name}, {'dask' if chunks is not None else 'eager'}"
            yield from compare_group(folder, name, label, lambda a, d=dataset: d[a].values)


def read_datasets(folder: Path, _: str) -> Iterator[Pair]:
    """Load a folder in the same way as the Hub: the vectors of all rows that are done."""
    import datasets

    for name in STORES:
        path = folder / "stores" / f"{name}.zarr"
        if not (path / "native.parquet").exists():  # finalised without pyarrow
            continue
        loaded = datasets.load_dataset(str(path), split="train")
        ids = expected_ids(folder, name)
        row_of = {row["id"]: row for row in loaded}
        shared = [clip for clip in row_of if clip in {*ids}]
        yield f"{name}: ids", shared == ids
        for array, expected in expected_arrays(folder, name):
            if array in loaded.features:  # a vector
                values = np.array([row_of[clip][array] for clip in ids], expected.dtype)
                yield f"{name}: {array}", same(values, expected)


def read_pandas(folder: Path, _: str) -> Iterator[Pair]:
    """Read the predictions of a run with pandas."""
    import pandas

    texts = {"id": str, "test": str}
    frame = pandas.read_csv(folder / "predictions.csv", dtype=texts, float_precision="round_trip")
    _, *expected = json.loads((folder / "expected" / "predictions.json").read_text())
    rows = frame.astype(object).values.tolist()
    texts = [[*map(str, row[:-1])] for row in rows]
    yield "texts", texts == [row[:-1] for row in expected]
    numbers = [row[-1] for row in rows]
    yield "numbers", numbers == [float(row[-1]) for row in expected]


def read_pympi(folder: Path, _: str) -> Iterator[Pair]:
    """Read the tiers of each ELAN file with pympi: start and end in milliseconds, and value."""
    from pympi.Elan import Eaf

    files = json.loads((folder / "expected" / "elan.json").read_text())
    for name, tiers in files.items():
        eaf = Eaf(str(folder / "elan" / name))
        for tier, notes in tiers.items():
            found = [list(note[:3]) for note in eaf.get_annotation_data_for_tier(tier)]
            yield f"{name}: {tier}", sorted(found) == sorted(notes)


READERS: dict[str, Callable[[Path, str], Iterator[Pair]]] = {
    "zarr": read_zarr,
    "tensorstore": read_tensorstore,
    "xarray and dask": read_xarray,
    "datasets": read_datasets,
    "pandas": read_pandas,
    "pympi": read_pympi,
}


def main(folder: Path, url: str, names: list[str]) -> int:
    """Print a line for each reader; return 1 if a value differs or a package is missing."""
    warnings.simplefilter("ignore")
    failed = False
    for name in names or list(READERS):
        try:
            pairs = list(READERS[name](folder, url))
        except Exception as error:  # the other readers still run
            sys.stdout.write(f"{name:20} failed: {type(error).__name__}: {error}\n")
            failed = True
            continue
        wrong = [what for what, equal in pairs if not equal]
        equal = len(pairs) - len(wrong)
        counts = f"{len(pairs):4} compared, {equal:4} equal"
        sys.stdout.write(f"{name:20} {counts}  {', '.join(wrong[:5])}\n")
        failed = failed or bool(wrong) or not pairs
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
