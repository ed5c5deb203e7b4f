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
READERS: dict[str, Callable[[Path, str], Iterator[Pair]]] = {}


def reader(name: str) -> Callable[..., Callable[[Path, str], Iterator[Pair]]]:
    """Register a function that yields the values that it read, and whether they equal ours."""

    def register(read: Callable[[Path, str], Iterator[Pair]]) -> Callable[..., Iterator[Pair]]:
        READERS[name] = read
        return read

    return register


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


@reader("zarr")
def read_zarr(folder: Path, url: str) -> Iterator[Pair]:
    """Read folders and zip files, and over HTTP, with zarr-python."""
    import zarr

    for name in STORES:
        path = folder / "stores" / name
        group = zarr.open_group(f"{path}.zarr", mode="r")
        yield from compare_group(folder, name, f"{name}.zarr", lambda a, g=group: g[a][:])
        packed = zarr.open_group(zarr.storage.ZipStore(f"{path}.zip", mode="r"), mode="r")
        yield from compare_group(folder, name, f"{name}.zip", lambda a, g=packed: g[a][:])
        served = zarr.open_group(f"{url}/{name}.zarr", mode="r")
        yield from compare_group(folder, name, f"{url}/{name}", lambda a, g=served: g[a][:])


@reader("tensorstore")
def read_tensorstore(folder: Path, url: str) -> Iterator[Pair]:
    """Read folders, and over HTTP, with tensorstore."""
    import tensorstore

    def open_array(kvstore: dict[str, str]) -> object:
        return tensorstore.open({"driver": "zarr3", "kvstore": kvstore}).result().read().result()

    for name in STORES:
        path = f"{folder}/stores/{name}.zarr"
        yield from compare_group(
            folder, name, path, lambda a, p=path: open_array({"driver": "file", "path": f"{p}/{a}"})
        )
        served = f"/{name}.zarr"
        yield from compare_group(
            folder, name, f"{url}{served}",
            lambda a, p=served: open_array({"driver": "http", "base_url": url, "path": f"{p}/{a}"}),
        )  # fmt: skip


@reader("xarray and dask")
def read_xarray(folder: Path, _: str) -> Iterator[Pair]:
    """Read with xarray, both eagerly and in dask chunks."""
    import xarray

    for name in STORES:
        path = f"{folder}/stores/{name}.zarr"
        for chunks in (None, {}):
            dataset = xarray.open_zarr(path, chunks=chunks, decode_cf=False)
            label = f"{name}, {'dask' if chunks is not None else 'eager'}"
            yield from compare_group(folder, name, label, lambda a, d=dataset: d[a].values)


@reader("datasets")
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
        yield f"{name}: ids", [clip for clip in row_of if clip in {*ids}] == ids
        for array, expected in expected_arrays(folder, name):
            if array in loaded.features:  # a vector
                values = np.array([row_of[clip][array] for clip in ids], expected.dtype)
                yield f"{name}: {array}", same(values, expected)


@reader("h5py")
def read_hdf5(folder: Path, _: str) -> Iterator[Pair]:
    """Read the HDF5 export with h5py."""
    import h5py

    for name in STORES:
        with h5py.File(folder / f"{name}.h5") as file:
            for array, expected in expected_arrays(folder, name):
                yield f"{name}.h5/{array}", same(file[array][:], expected)


def compare_table(folder: Path, label: str, rows: list[list[object]]) -> Iterator[Pair]:
    """Compare the predictions of a run, with numbers identical to the last bit."""
    header, *expected = json.loads((folder / "expected" / "predictions.json").read_text())
    last = len(header) - 1
    texts = [[str(cell) for cell in row[:last]] for row in rows]
    yield f"{label}: texts", texts == [row[:last] for row in expected]
    yield (
        f"{label}: {header[last]}",
        [row[last] for row in rows] == [float(r[last]) for r in expected],
    )


@reader("pandas")
def read_pandas(folder: Path, _: str) -> Iterator[Pair]:
    """Read the predictions of a run with pandas."""
    import pandas

    frame = pandas.read_csv(folder / "predictions.csv", dtype={"id": str, "test": str})
    exact = pandas.read_csv(folder / "predictions.csv", float_precision="round_trip")
    frame[frame.columns[-1]] = exact[frame.columns[-1]]
    yield from compare_table(folder, "predictions.csv", frame.astype(object).values.tolist())


@reader("polars")
def read_polars(folder: Path, _: str) -> Iterator[Pair]:
    """Read the predictions of a run with polars."""
    import polars

    rows = [list(row) for row in polars.read_csv(folder / "predictions.csv").iter_rows()]
    yield from compare_table(folder, "predictions.csv", rows)


@reader("duckdb")
def read_duckdb(folder: Path, _: str) -> Iterator[Pair]:
    """Read the predictions of a run with SQL."""
    import duckdb

    rows = duckdb.sql(f"SELECT * FROM read_csv('{folder}/predictions.csv')").fetchall()
    yield from compare_table(folder, "predictions.csv", [list(row) for row in rows])


def compare_elan(
    folder: Path, read: Callable[[Path], dict[str, list[list[object]]]]
) -> Iterator[Pair]:
    """Compare the tiers of each ELAN file: start and end in milliseconds, and value."""
    files = json.loads((folder / "expected" / "elan.json").read_text())
    for name, tiers in files.items():
        found = {tier: sorted(notes) for tier, notes in read(folder / "elan" / name).items()}
        yield name, all(found.get(tier) == sorted(notes) for tier, notes in tiers.items())


@reader("pympi")
def read_pympi(folder: Path, _: str) -> Iterator[Pair]:
    """Read ELAN files with pympi."""
    from pympi.Elan import Eaf

    def read(path: Path) -> dict[str, list[list[object]]]:
        eaf = Eaf(str(path))
        names = [
            name
            for name in eaf.get_tier_names()
            if not eaf.get_parameters_for_tier(name).get("PARENT_REF")
        ]
        return {n: [list(note[:3]) for note in eaf.get_annotation_data_for_tier(n)] for n in names}

    yield from compare_elan(folder, read)


@reader("speach")
def read_speach(folder: Path, _: str) -> Iterator[Pair]:
    """Read ELAN files with speach."""
    from speach import elan

    def read(path: Path) -> dict[str, list[list[object]]]:
        document = elan.read_eaf(str(path))
        return {
            tier.name: [[n.from_ts.value, n.to_ts.value, n.value] for n in tier]
            for tier in document if tier.parent is None
        }  # fmt: skip

    yield from compare_elan(folder, read)


@reader("ir_measures")
def read_ranking(folder: Path, _: str) -> Iterator[Pair]:
    """Read and score a trec_eval run file; average precision must agree to a millionth."""
    import ir_measures

    expected = json.loads((folder / "expected" / "ranking.json").read_text())
    run = list(ir_measures.read_trec_run(str(folder / "level.run")))
    yield "level.run", {line.doc_id: line.score for line in run} == expected["scores"]
    truth = list(ir_measures.read_trec_qrels(str(folder / "level.qrels")))
    [score] = ir_measures.calc_aggregate([ir_measures.AP], truth, run).values()
    yield "level.run: average precision", abs(score - expected["ap"]) < 1e-6


@reader("huggingface_hub")
def read_cards(folder: Path, _: str) -> Iterator[Pair]:
    """Read the card of each store in the same way as the Hub: tags and licence."""
    from huggingface_hub import DatasetCard

    for name in STORES:
        store = folder / "stores" / f"{name}.zarr"
        facts = json.loads((store / "zarr.json").read_text())["attributes"]["obygaze"]
        data = DatasetCard.load(store / "README.md").data
        yield f"{name}: tags", {"zarr", facts["backbone"]["name"]} <= {*data.tags}
        stated = data.to_dict().get("license_name", data.license)
        yield f"{name}: licence", (stated or "").lower() == facts["licence"].lower()


def say(line: str) -> None:
    """Write a line of the table."""
    sys.stdout.write(line + "\n")


def main(folder: Path, url: str, names: list[str]) -> int:
    """Print a line for each reader; return 1 if a value differs or a package is missing."""
    warnings.simplefilter("ignore")
    failed = False
    for name in names or list(READERS):
        try:
            pairs = list(READERS[name](folder, url))
        except Exception as error:  # the other readers still run
            say(f"{name:20} failed: {type(error).__name__}: {error}")
            failed = True
            continue
        wrong = [what for what, equal in pairs if not equal]
        counts = f"{len(pairs):4} compared, {len(pairs) - len(wrong):4} equal"
        say(f"{name:20} {counts}  {', '.join(wrong[:5])}")
        failed |= bool(wrong) or not pairs
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]))
