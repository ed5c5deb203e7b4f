"""`obygaze stores map`: positions of clips, colours, and files."""

import re
import sys
import time
from dataclasses import replace
from urllib.parse import parse_qs

import numpy as np
import pytest

import obygaze_features as of
from obygaze_features.common.figures import level_colour_names
from obygaze_features.errors import ObygazeError
from obygaze_features.manifests import Item, Items
from obygaze_features.retrieval import clip_map as clip_map_module
from obygaze_features.retrieval.clip_map import ClipMap, map_clips, map_page, write_map
from obygaze_features.retrieval.clips import describe_clips, link_to
from tests.kit.files import refused
from tests.kit.page import open_tab
from tests.retrieval.conftest import FAILED, TITLES, ZERO


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
    assert f"The two axes show {share[:2].sum():.0%} of" in clip_map.axes
    left_out = "Left out: 9 clips with no vector. Left out: 1 clip with a vector of zeros."
    assert clip_map.axes.endswith(left_out)


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
    # Colour by any column of the items, without labels. Rare values share one colour.
    items = replace(manifest.items, extra={"director": ["A", "B", "", *["A"] * 37]})
    by_director = map_clips(store, color="director", manifest=of.Manifest("n", items))
    directors = {name: len(rows) for name, rows in by_director.groups.items()}
    assert directors == {"A": 28, "B": 1, "no director": 1}
    files = map_clips(store, color="media", manifest=manifest).groups
    assert [*map(len, files.values())] == [*map(len, films.groups.values())]
    own = replace(items, extra={"own": items.ids})
    large = map_clips(store, color="own", manifest=of.Manifest("n", own))
    assert len(large.groups) == 30
    assert not re.search('pressed="true"|swatch s', "".join(map_page(large)))
    monkeypatch.setattr(clip_map_module, "MAX_GROUPS", 1)
    top_groups = map_clips(store, color="director", manifest=of.Manifest("n", items)).groups
    assert {name: len(rows) for name, rows in top_groups.items()} == {"A": 28, "others": 2}
    assert len(map_clips(store, film="tt3").legends["film"]["tt3"]) == 9


def test_a_page_highlights_names_and_opens_clips(obygaze, source, store, manifest, tmp_path):
    """Names highlight clips; keys and pointer choose among the highlighted ones."""
    path, report, clip_map = tmp_path / "a.html", tmp_path / "it's.html", map_clips(store)
    report.write_text("a report")
    command = ("stores", "map", source.path, "--manifest", manifest.folder, "-o", path)
    assert [obygaze(*command, "--report", report).exit_code for _ in "ab"] == [0, 1]
    with open_tab() as tab:
        tab.open(path)
        assert {tab.text("h1"), tab.text("title")[:32]} == {"Map of 30 of 40 clips of 3 films"}
        texts = tab.texts("circle")
        assert [text.split("\n")[-1] for text in texts] == clip_map.ids
        places = np.array([tab.texts("circle", f"{axis}.baseVal.value") for axis in ("cx", "cy")])
        across = np.corrcoef(places, clip_map.points.T)[:2, 2:]
        assert (across.diagonal() * [1, -1] > 0.9999).all()
        assert f"{TITLES['tt1']}, 0:05:00\nSure\nLook\ntt1-015" in texts
        # It opens unlit, in the colours of levels, which paper keeps.
        colours = dict(zip(["EN", "S"], level_colour_names(["EN", "S"]), strict=True))
        levels = map(manifest.labels().level_of.get, clip_map.ids)
        assert tab.texts("circle", "classList[0]") == [colours.get(c, "soft") for c in levels]
        assert (len(tab.texts("circle.lit")), tab.texts("[aria-pressed=true]")) == (30, [])
        tab.prefer("print")
        assert tab.texts("#facts", "checkVisibility()") == [False]
        colour = "nodeType && getComputedStyle(e).printColorAdjust"
        assert {*tab.texts(".swatch", colour)} == {"exact"}
        tab.prefer()
        tab.click(".of-film button")
        assert tab.texts(".lit") == (of_film := [text for text in texts if TITLES["tt1"] in text])
        assert tab.text("#lit") == f"{len(of_film)} of 30 clips"
        tab.click(".of-concept button")
        assert tab.texts(".lit") == (lit := [text for text in of_film if "Look" in text])
        tab.run("map.focus()")
        tab.press("ArrowRight", "ArrowRight")
        assert tab.text("#facts") == lit[1]
        assert (tab.logged, tab.requested) == ([], [path.as_uri()])
        # A press stays on the page and shows a link; the address has the highlighted names.
        tab.click("circle.lit:last-of-type")
        assert tab.text("#facts") == lit[-1]
        assert tab.run("link.href") == f"{report.as_uri()}#clip={lit[-1][-7:]}"
        address, fragment = tab.run("location.href").split("#")
        names = {"film": [TITLES["tt1"]], "concept": ["Look"]}
        assert (address, parse_qs(fragment)) == (path.as_uri(), names)
        tab.open(path, fragment=f"#{fragment}")
        assert tab.texts(".lit") == lit


def test_many_clips_are_drawn_like_a_few(source, store, manifest, tmp_path, monkeypatch):
    """A canvas replaces the circles; names, keys and pointer work the same."""
    small, large = tmp_path / "few.html", tmp_path / "many.html"
    clip_map = map_clips(store, manifest=manifest)
    small.write_text("".join(map_page(clip_map)))
    monkeypatch.setattr(clip_map_module, "MAX_CIRCLES", 29)
    large.write_text("".join(map_page(clip_map)))
    alpha = "map.getContext('2d').getImageData({}, {}, 1, 1).data[3]"
    with open_tab() as tab:
        tab.open(small)
        texts = tab.texts("circle")
        places = tab.texts("circle", "cx.baseVal.value"), tab.texts("circle", "cy.baseVal.value")
        tab.open(large)
        assert (tab.logged, tab.requested) == ([], [large.as_uri()])
        share = tab.run("map.width / 1000")
        pixels = [alpha.format(x * share, y * share) for x, y in zip(*places, strict=True)]
        assert tab.texts("circle") == []
        alphas = [tab.run(pixel) for pixel in pixels]
        assert min(alphas) >= 0.39 * 255
        tab.click(".of-film button")
        lit = [n for n, text in enumerate(texts) if TITLES["tt1"] in text]
        assert tab.text("#lit") == f"{len(lit)} of 30 clips"
        assert all(tab.run(pixels[n]) > 0.9 * 255 for n in lit)
        assert sum(tab.run(pixel) < 0.4 * 255 for pixel in pixels) > 10
        tab.run("map.focus()")
        tab.press("ArrowRight", "ArrowRight")
        assert tab.text("#facts") == texts[lit[1]]
        box = tab.run("(() => { const b = map.getBoundingClientRect(); return [b.x, b.y] })()")
        dot = tab.run(f"[x[{lit[0]}], y[{lit[0]}]].map((at) => at * map.clientWidth / 1000)")
        for kind in ("mousePressed", "mouseReleased"):
            tab.mouse(kind, box[0] + dot[0], box[1] + dot[1])
        assert tab.text("#facts") == texts[lit[0]]


@pytest.mark.night
def test_a_page_of_100_000_clips_opens_in_three_seconds(tmp_path):
    """Time until it is drawn and its names respond; the best of three."""
    count = 100_000
    ids = [f"tt{row // 150:04}-{row % 150:03}" for row in range(count)]
    films = {f"tt{film:04}": [] for film in range(-(-count // 150))}
    for row, name in enumerate(ids):
        films[name[:6]].append(row)
    manifest = of.Manifest("m", Items.of([Item(n, film=n[:6], media=f"{n}.mp4") for n in ids]))
    points = np.random.default_rng(1).standard_normal((count, 2))
    path, seconds = tmp_path / "map.html", []
    clips, colours = describe_clips([], manifest), dict.fromkeys(films, "s1")
    large = ClipMap(clips, "Many", "", ids, points, films, colours, {"film": films}, "film", "")
    path.write_text("".join(map_page(large)))
    with open_tab() as tab:
        for _ in range(3):
            began = time.monotonic()
            tab.open(path)
            tab.run("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
            tab.click(".of-film button")
            assert tab.text("#lit") == "150 of 100,000 clips"
            seconds.append(time.monotonic() - began)
    assert min(seconds) < 3


def test_one_film_is_highlighted_in_a_figure(obygaze, source, manifest, tmp_path):
    command = ("stores", "map", source.path, "--manifest", manifest.folder, "--film", "juno", "-o")
    assert obygaze(*command, tmp_path / "map.svg").exit_code == 0
    texts = re.findall(">([^<>]+)</text>", (tmp_path / "map.svg").read_text())
    assert {"Easy Negative (1)", "Sure (4)", "no label (4)", "other films (21)"} <= {*texts}


@pytest.mark.gate
@pytest.mark.filterwarnings("ignore:Tensorflow not installed")
def test_umap_keeps_distant_clips_apart(store):
    """The nearest clip on the map is also near in feature space, by brute force."""
    drawn = map_clips(store, method="umap")
    x = store.read("native", ids=drawn.ids)
    x = x / np.linalg.norm(x, axis=1, keepdims=True)
    unlike = 1 - x @ x.T + 9 * np.eye(len(x))
    apart = np.linalg.norm(drawn.points[:, None] - drawn.points, axis=2) + 9e9 * np.eye(len(x))
    next_one = unlike[range(len(x)), apart.argmin(axis=1)]
    assert np.median(next_one) < np.median(unlike) - 0.05


def test_invalid_maps_are_refused_in_one_line(obygaze, store, manifest, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "umap", None)
    for options, message in (
        ({"color": "level"}, "--manifest"),
        ({"color": "Lok", "manifest": manifest}, "'Lok'; did you mean Look"),
        ({"array": "frames"}, "one vector per clip"),
        ({"film": "Jno", "manifest": manifest}, "did you mean Juno"),
        ({"film": ["tt1", "tt3"]}, "pass exactly one film .got tt1, tt3"),
        ({"labels": "annotator9", "manifest": manifest}, "annotator9"),
        ({"method": "umap"}, r"obygaze\[umap\]"),
        ({"method": "tsne"}, "unknown method 'tsne'; choose from pca, umap"),
    ):
        with pytest.raises(ObygazeError, match=message):
            map_clips(store, **options)
    for option in (["--width", "6.5"], ["--ground", "white"]):
        result = obygaze("stores", "map", store.where, "-o", tmp_path / "map.html", *option)
        refused(result, "only for figures; leave them out", code=2)
    with pytest.raises(ObygazeError, match=r"map\.gif"):
        write_map(store, tmp_path / "map.gif")
    with pytest.raises(ObygazeError, match="only a page"):
        write_map(store, tmp_path / "map.svg", report=tmp_path)


def test_a_report_on_another_drive_of_windows_is_linked(tmp_path, monkeypatch):
    def refuse(*paths):
        raise ValueError("path is on mount 'C:', start on mount 'D:'")

    (tmp_path / "report.html").write_text("")
    monkeypatch.setattr("os.path.relpath", refuse)
    link = link_to(tmp_path / "report.html", tmp_path / "map.html")
    assert link == f"{(tmp_path / 'report.html').as_uri()}#clip="
