"""The shipped example: the words of 20 films by minute, with labels by two annotators."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
from sklearn.utils import Bunch

from obygaze_features.common.files import new_folder
from obygaze_features.common.package import reference_file
from obygaze_features.manifests import Manifest
from obygaze_features.store import open_store

MANIFEST = "minutes"
STORE = "words.zarr"
ABOUT = "README.md"
EXPERIMENTS = ("level.toml", "rest.toml", "length.toml", "concepts.toml", "reasons.toml")
ANNOTATORS = ("annotator1", "annotator2")


def load_example() -> Bunch:
    """Load the words of 2,567 minutes of film as numbers, with labels by two annotators.

    Returns
    -------
    A dictionary whose keys are also attributes, as in scikit-learn's loaders:
        `X` has an embedding of the words [N, 384] and `count` their number [N, 1] for each minute.
        `ids` and `groups` have the minutes' ids and films. For each annotator, `y` has the minutes'
        level codes, and `concepts` has True where a minute shows a concept [N, K]. `concept_names`
        and `levels` have the names of all concepts and the codes of all levels, `titles` the title
        of each film, and `DESCR` a description.

    Examples
    --------
    >>> data = load_example()
    >>> data.X.shape, sorted(data.y), data.levels
    ((2567, 384), ['annotator1', 'annotator2'], ['EN', 'HN', 'NS', 'S'])
    """
    from obygaze_features.items.films import film_titles

    manifest = Manifest.load(example_path(MANIFEST))
    store = open_store(example_path(STORE))
    names = manifest.scheme.concept_names
    y = {}
    concepts = {}
    for annotator in ANNOTATORS:
        labels = manifest.labels(annotator)
        y[annotator] = np.array([labels.level_of[name] for name in manifest.ids])
        shown = [np.isin(names, labels.concepts_of[name]) for name in manifest.ids]
        concepts[annotator] = np.array(shown)
    films = sorted(set(manifest.items.films))
    titles = film_titles(manifest.items)
    return Bunch(
        X=store.read("native", manifest.ids).astype(np.float32),
        count=store.read("count", manifest.ids),
        y=y,
        groups=np.array(manifest.items.films),
        concepts=concepts,
        concept_names=list(names),
        levels=list(manifest.scheme.codes),
        ids=manifest.ids,
        titles={film: titles[film] for film in films},
        DESCR=example_path(ABOUT).read_text(),
    )


def copy_example(folder: Path, *, overwrite: bool) -> None:
    """Copy the manifest, the store, the experiments and the README into a new folder."""
    with new_folder(folder, overwrite=overwrite, marker=EXPERIMENTS[0]) as new:
        for name in (MANIFEST, STORE):
            shutil.copytree(example_path(name), new / name, copy_function=shutil.copyfile)
        for name in (ABOUT, *EXPERIMENTS):
            shutil.copyfile(example_path(name), new / name)


def example_path(name: str) -> Path:
    """Return the path of a file or folder of the example."""
    return reference_file(f"mobygaze/{name}")
