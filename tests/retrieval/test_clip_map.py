"""`obygaze stores map`: where clips are, their colours, and the files."""

import re
import sys
from dataclasses import replace

import numpy as np
import pytest

import obygaze_features as of
from obygaze_features.errors import ObygazeError
from obygaze_features.manifests import Concept, LabelScheme, LabelSet, Level
from obygaze_features.retrieval import clip_map as clip_map_module
from obygaze_features.retrieval.clip_map import map_clips, write_map
from tests.retrieval.conftest import FAILED, ZERO


@pytest.fixture(scope="module")
def manifest(source):
    """The first twenty clips are labelled; the odd ones of them show "Look"."""
    ids = source.ids[:20]
    levels = ["EN" if row < 8 else "S" for row in range(20)]
    concepts = [("Look",) if row % 2 else () for row in range(20)]
    scheme = LabelScheme(
        "s", (Level("EN", "Easy Negative"), Level("S", "Sure")), (Concept("Look"),)
    )
    labels = [LabelSet("all", ids, levels, concepts)]
    return of.Manifest("m", of.open_store(source.path).items, scheme=scheme).with_parts(
        labels=labels
    )


def group_of(clip_map):
    return {clip_map.ids[row]: name for name, rows in clip_map.groups.items() for row in rows}


def test_axes_are_principal_components(source, store):
    clip_map = map_clips(store)
    rows = [row for row in np.flatnonzero(source.done) if row != ZERO]
    assert clip_map.ids == [source.ids[row] for row in rows]
    vectors = source.values["native"][rows].astype(np.float64)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors -= vectors.mean(0)
    left, sizes, _ = np.linalg.svd(vectors, full_matrices=False)
    np.testing.assert_allclose(abs(clip_map.points), abs(left[:, :2] * sizes[:2]), atol=1e-4)
    share = sizes**2 / (sizes**2).sum()
    assert f"{share[0]:.0%} and {share[1]:.0%}" in clip_map.axes


def test_colours_are_films_levels_concepts_or_columns(source, store, manifest, monkeypatch):
    films = map_clips(store)
    assert all(item_id.startswith(film) for item_id, film in group_of(films).items())
    assert len({films.colours[film] for film in films.groups}) == 3
    groups = group_of(map_clips(store, color="level", manifest=manifest))
    assert (groups[source.ids[0]], groups[source.ids[9]]) == ("Easy Negative", "Sure")
    assert groups[source.ids[25]] == "no label"
    groups = group_of(map_clips(store, color="look", manifest=manifest))
    assert (groups[source.ids[1]], groups[source.ids[2]]) == ("Look", "without Look")
    assert {source.ids[FAILED], source.ids[ZERO]}.isdisjoint(groups)
    # By any column of the items, without labels; what is rare has no colour of its own.
    items = replace(manifest.items, extra={"director": ["A", "B", "", *["A"] * 37]})
    by_director = map_clips(store, color="director", manifest=of.Manifest("n", items))
    directors = {name: len(rows) for name, rows in by_director.groups.items()}
    assert directors == {"A": 28, "B": 1, "no director": 1}
    files = map_clips(store, color="media", manifest=manifest).groups
    assert (len(files), list(map(len, files.values()))[:3]) == (30, [1, 1, 1])
    monkeypatch.setattr(clip_map_module, "MAX_GROUPS", 1)
    few = map_clips(store, color="director", manifest=of.Manifest("n", items)).groups
    assert {name: len(rows) for name, rows in few.items()} == {"A": 28, "others": 2}


def test_a_page_names_each_mark(obygaze, source, store, tmp_path):
    clip_map, command = map_clips(store), ("stores", "map", source.path, "-o", tmp_path / "a.html")
    result = obygaze(*command)
    assert result.exit_code == 0, result.output
    assert "30 clips, two principal components" in result.stdout
    assert obygaze(*command).exit_code == 1

    page = (tmp_path / "a.html").read_text()
    texts = re.findall("<use [^>]*><title>(.*?)</title></use>", page)
    by_film = group_of(clip_map)
    assert texts == [f"{item_id} ({film})" for item_id, film in by_film.items()]
    marks = [float(x) for x in re.findall(r'<use [^>]*?\bx="([^"]*)"', page)]
    position = dict(zip(clip_map.ids, clip_map.points[:, 0], strict=True))
    expected = [position[item_id] for item_id in by_film]
    assert np.corrcoef(marks[: len(texts)], expected)[0, 1] > 0.9999
    assert "default-src 'none'" in page
    assert not re.findall(r'(?:src|href)="https?://|url\(["\']?http', page)


@pytest.mark.gate
@pytest.mark.filterwarnings("ignore:Tensorflow not installed")
def test_clips_that_are_far_apart_are_so_by_umap(store):
    """Of each clip the next one on the map is near it, by brute force."""
    drawn = map_clips(store, method="umap")
    x = store.read("native", ids=drawn.ids)
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    unlike = 1 - x @ x.T + 9 * np.eye(len(x))
    apart = np.linalg.norm(drawn.points[:, None] - drawn.points, axis=2) + 9e9 * np.eye(len(x))
    next_one = unlike[range(len(x)), apart.argmin(axis=1)]
    assert np.median(next_one) < np.median(unlike) - 0.05


def test_bad_maps_are_one_line(store, manifest, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "umap", None)
    for options, message in (
        ({"color": "level"}, "--manifest"),
        ({"color": "Lok", "manifest": manifest}, "'Lok'; did you mean Look"),
        ({"array": "frames"}, "one vector per clip"),
        ({"method": "umap"}, r"obygaze\[umap\]"),
        ({"method": "tsne"}, "unknown method 'tsne'; known are pca, umap"),
    ):
        with pytest.raises(ObygazeError, match=message):
            map_clips(store, **options)
    with pytest.raises(ObygazeError, match=r"map\.gif"):
        write_map(store, tmp_path / "map.gif")
