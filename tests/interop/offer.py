"""Write what other programs read, and our own values beside it: ``offer.py DEMO FOLDER``.

DEMO is the folder that `make demo` wrote. FOLDER gets its stores in every form that we export, and
in ``expected/`` each array as `Store.read` returns it, in NumPy's own format.
"""

import csv
import hashlib
import json
import shutil
import sys
from pathlib import Path

import numpy as np

import obygaze_features as of
from obygaze_features.common.elan import read_eaf
from obygaze_features.errors import ObygazeError

STORES = {"pictures": "stores/efficientnet-lite0.zarr", "words": "mobygaze/words.zarr"}


def offer_store(folder: Path, name: str) -> dict[str, dict[str, object]]:
    """Write a store's expected values, and the store as a zip file.

    Return each array's type, shape and digest, for readers without NumPy.
    """
    store = of.open_store(folder / "stores" / f"{name}.zarr")
    expected = folder / "expected" / name
    expected.mkdir(parents=True)
    ids = store.done_ids()
    digests = {}
    for array in store.arrays:
        values = store.read(array, ids=ids)
        np.save(expected / f"{array}.npy", values)
        digest = hashlib.sha256(values.tobytes()).hexdigest()
        digests[array] = {"dtype": values.dtype.name, "shape": values.shape, "sha256": digest}
    (expected / "ids.json").write_text(json.dumps(ids))
    of.pack(store, folder / "stores" / f"{name}.zip")
    return digests


def offer_annotations(folder: Path) -> None:
    """Write the start, end and value that our own reader finds in each ELAN file, by tier."""
    files = {}
    for path in sorted((folder / "elan").glob("*.eaf")):
        document, _ = read_eaf(path, ObygazeError)
        tiers = {}
        for tier in document.tiers:
            tiers[tier.name] = [[note.start, note.end, note.value] for note in tier.annotations]
        files[path.name] = tiers
    (folder / "expected" / "elan.json").write_text(json.dumps(files))


def offer_table(demo: Path, folder: Path) -> None:
    """Copy the predictions of a run, and write their rows as read by Python's csv module."""
    table = demo / "runs/level/predictions.csv"
    shutil.copy(table, folder / "predictions.csv")
    with table.open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    (folder / "expected" / "predictions.json").write_text(json.dumps(rows))


def main(demo: Path, folder: Path) -> None:
    """Write the files of every type, each with its expected values."""
    (folder / "stores").mkdir(parents=True)
    digests = {}
    for name, path in STORES.items():
        shutil.copytree(demo / path, folder / "stores" / f"{name}.zarr")
        store = of.open_store(folder / "stores" / f"{name}.zarr")
        if not store.is_final:
            of.finalise(store)
        digests[name] = offer_store(folder, name)
    (folder / "expected" / "digests.json").write_text(json.dumps(digests))
    offer_annotations(folder)
    offer_table(demo, folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
