"""Join the embeddings of the minutes and their numbers of words in one store.

    python examples/mobygaze/words.py MANIFEST STORES FOLDER

MANIFEST has the texts of the minutes, and STORES their all-minilm-l6-v2.zarr and words.zarr.
FOLDER gets a final words.zarr.
"""

import sys
from pathlib import Path

import numpy as np

import obygaze_features as of
from obygaze_features.store import ArraySpec, Done, Recipe, StoreWriter
from obygaze_features.store.diff import read_probe

NATIVE = ArraySpec("native", (384,), "float16", "embedding of the words; zeros if there are none")
COUNT = ArraySpec.named("count", (1,), "the number of words of two or more characters")


def main(folder: Path, stores: Path, output: Path) -> None:
    """Write the store. A minute without words gets zeros, as it says nothing."""
    manifest = of.Manifest.load(folder)
    sentences = of.open_store(stores / "all-minilm-l6-v2.zarr")
    words = of.open_store(stores / "words.zarr")
    vectors = sentences.read("native", manifest.ids)
    vectors[np.array(manifest.items.texts) == ""] = 0

    made = sentences.attributes
    recipe = Recipe(
        "words", made["backbone"], made["preprocessing"], made["precision"], (NATIVE, COUNT)
    )
    probe = {"native": read_probe(sentences)["native"], "count": read_probe(words)["count"]}
    path = output / "words.zarr"
    writer = StoreWriter.create(path, manifest.items, recipe, manifest.about, probe=probe)
    rows = {}
    for row, pair in enumerate(zip(vectors, words.read("count", manifest.ids), strict=True)):
        rows[row] = Done(dict(zip(("native", "count"), pair, strict=True)), source=None)
    writer.write_rows(rows)
    of.finalise(path)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
