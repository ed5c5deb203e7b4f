"""A film's name means the same in every function, and in ``--film``."""

import numpy as np
import pytest

import obygaze_features as of
from obygaze_features.annotations import Film, Segment
from obygaze_features.errors import UsageError
from obygaze_features.manifests import Item, Items

TITLES = {
    "tt0110912": "Pulp Fiction",
    "tt0467406": "Juno",
    "f1": "Crazy, Stupid, Love",
    "f2": "What [a] Day?",
    "g": "Twins (1988)",
    "h": "Twins",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A manifest and its store, and timelines of the same films."""
    folder = tmp_path_factory.mktemp("films")
    items = [Item(f"{film}-1", film=film) for film in TITLES]
    titles = {"movie_title": [*TITLES.values()]}
    manifest = of.Manifest("m", Items.of(items, titles))
    np.save(folder / "X.npy", np.eye(len(TITLES)))
    store = of.import_features(folder / "X.npy", manifest, folder / "s.zarr", ids=manifest.ids)
    films = {film: Film(title) for film, title in TITLES.items()}
    segments = [Segment(film, "ann", 0, 20.0, "S") for film in TITLES]
    timelines = of.Timelines("t", segments, films=films)
    timelines.save(folder / "t")
    return manifest, store, timelines


def ways(made, names, output):
    """Return the films that each function selects, by function."""
    manifest, store, timelines = made
    ones = np.ones(len(TITLES))
    yield lambda: manifest.select(films=names).items.films
    yield lambda: timelines.of_films(names).films
    yield lambda: [match.film for match in of.search(store, vector=ones, films=names)]
    yield lambda: of.subset(store, output, films=names).items.films


@pytest.mark.parametrize(
    ("names", "films"),
    [
        (["juno", "f2"], {"tt0467406", "f2"}),
        ("f1, pulp fiction", {"f1", "tt0110912"}),
        ("crazy, stupid,  love", {"f1"}),
        (["!Crazy, Stupid, Love", "!tt0*,!g"], {"f2", "h"}),
        (["*[a]*,JUN*"], {"f2", "tt0467406"}),
        (["twins"], "matches several films; use an id: g, h"),
        (["f?"], "unknown film 'f\\?'"),
        (["juno,Pulp Fictoin"], "did you mean Pulp Fiction?"),
    ],
)
def test_films_are_named_by_id_title_or_pattern(made, tmp_path, names, films):
    for select in ways(made, names, tmp_path / "part.zarr"):
        if isinstance(films, str):
            with pytest.raises(UsageError, match=films):
                select()
        else:
            assert set(select()) == films
