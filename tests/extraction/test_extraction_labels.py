"""The page for labelling clips with the keyboard, in a real browser."""

import json

import pytest
from PIL import Image

from obygaze_features.manifests import Concept, Item, Items, LabelScheme, Level, Manifest
from tests.kit.files import csv_rows, refused
from tests.kit.films import write_clip
from tests.kit.page import open_tab
from tests.report.conftest import axe

SAVED = "window.saved = []; URL.createObjectURL = blob => { saved.push(blob); return '#' }; 0"
HOSTILE = "'\"}}{{ 7 * 7 }}<script>hit()<|script><img src=x onerror=hit()>"
ROWS = 600


@pytest.fixture(scope="module")
def tab():
    with open_tab() as opened:
        yield opened


@pytest.fixture
def world(tmp_path):
    """A manifest of 600 spans of two films, and a picture of each span but the last."""
    (tmp_path / "pictures").mkdir()
    items = []
    for row in range(ROWS):
        film = "Juno" if row < ROWS / 2 else "Titanic"
        start = row % 300 * 10.0
        name = f"{film}-{start:g}s"
        media = f"{film}.mp4"
        items.append(Item(name, film=film, media=media, start=start, end=start + 10))
    for row, item in enumerate(items[:-1]):
        picture = Image.new("RGB", (48, 27), (row % 256, 90, 160))
        picture.save(tmp_path / f"pictures/{item.id}.jpg")
    manifest = Manifest("mine", Items.of(items))
    manifest.save(tmp_path / "mine")
    return tmp_path


@pytest.fixture
def page_of(world, obygaze):
    """Write the page of a manifest; the first or last clip has no picture."""

    def write(*options, levels="none,some,much", manifest="mine"):
        page = world / "labels.html"
        draw = ("features", "thumbnails", world / manifest, "--videos", world, "--overwrite")
        draw += ("-o", world / "pictures", "--page", page, *options)
        obygaze(*draw, *(["--levels", levels] if levels else []), code=3)
        return page

    return write


def saved(tab, path):
    """Press the button that saves, and write what it offers."""
    tab.run(SAVED)
    tab.click("#save")
    path.write_text(tab.run("saved[0].text()"), encoding="utf-8")
    return path


def test_600_spans_are_labelled_by_keys(tab, world, page_of, obygaze):
    page = page_of()
    tab.prefer()
    tab.open(page)
    [opened] = [url for url in tab.requested if url.startswith("file:")]
    assert opened.endswith(f"/{page.name}")
    assert tab.text("#position") == "1 of 600, 0 labelled"
    assert (tab.text("#film"), tab.text("#time")) == ("Juno", "0:00:00 – 0:00:10 (Juno-0s)")
    assert tab.run("document.querySelector('#picture img').decode().then(() => true)")
    for row in range(ROWS):
        tab.press(str(1 + row % 3))
    assert tab.text("#position") == "600 of 600, 600 labelled"
    assert tab.text("#picture") == "no picture"
    assert tab.texts("#levels span") == ["200", "200", "200", "0"]
    assert len(tab.texts("#map [class^=l]")) == ROWS

    table = saved(tab, world / "labels.csv")
    label = ("manifests", "label", world / "mine", table, "--levels", "none,some,much")
    assert "600 of 600 items labelled" in obygaze(*label, code=0).stdout
    labels = Manifest.load(world / "mine").labels("labels")
    assert labels.levels == ["none", "some", "much"] * (ROWS // 3)
    assert tab.logged == []


def load(tab, text):
    """Choose a file of labels."""
    tab.run(f"window.file = new Blob([{text!r}]); 0")
    tab.run(
        "Object.defineProperty(find('load'), 'files', {value: [file]}); find('load').onchange()"
    )


def test_labels_are_kept_and_loaded(tab, page_of, tmp_path):
    page = page_of()
    tab.open(page)
    tab.run("localStorage.clear()")
    tab.open(page)
    tab.press("2", "3")
    tab.open(page)
    assert tab.text("#position") == "3 of 600, 2 labelled"  # the first without a label
    tab.open(page_of(levels="no,yes"))  # other levels are other labels
    assert tab.text("#position") == "1 of 600, 0 labelled"

    tab.open(page_of("--film", "Titanic"))
    assert tab.text("#position") == "1 of 300, 0 labelled"
    rows = ("id,level,concepts", "Titanic-0s,none,", '"Titanic-10s","much",""', "Titanic-20s,x,")
    load(tab, "\r\n".join(rows))
    assert tab.text("#position") == "1 of 300, 2 labelled"
    rows = csv_rows(saved(tab, tmp_path / "t"))
    assert [row["id"] for row in rows] == ["Titanic-0s", "Titanic-10s"]


def test_hostile_names_are_shown_verbatim_and_read_back(tab, world, page_of, obygaze):
    hostile = HOSTILE.replace("|", "/")
    levels = ("=1+1", hostile, "-1", 'a,"b"', "__proto__")
    concepts = (f"</script>{hostile}", "+1", "constructor")
    named = tuple(Level(name, name) for name in levels)
    scheme = LabelScheme(HOSTILE, named, tuple(map(Concept, concepts)))
    film = f"@{HOSTILE}"
    ids = ["constructor", "toString", "id", "proto__x", "valueOf"]
    items = Items.of([Item(name, film=film, media="x.mp4") for name in ids])
    Manifest(HOSTILE, items, scheme).save(world / "hostile")
    picture = Image.new("RGB", (48, 27))
    for name in ids[1:]:
        picture.save(world / f"pictures/{name}.jpg")
    tab.open(page_of(levels=None, manifest="hostile"))
    assert (tab.text("#film"), tab.text("#picture")) == (film, "no picture")
    assert tab.texts("#levels bdi") == [*levels, "no label"]
    assert tab.texts("main img, iframe, main script:not([type])") == []
    tab.press("b", "c", "1", "a", "2", "3", "b", "b", "c", "4")
    tab.press("5")
    table = saved(tab, world / "hostile.csv")
    obygaze("manifests", "label", world / "hostile", table, code=0)
    labels = Manifest.load(world / "hostile").labels("hostile")
    assert labels.level_of == dict(zip(ids, levels, strict=True))
    script, plus, word = concepts
    assert labels.concepts == [(plus, word), (script,), (), (word,), ()]

    assert tab.logged == []


def test_the_page_is_accessible_and_fits_a_phone(tab, page_of):
    page = page_of(levels=None)  # ObyGaze12's levels and concepts
    for scheme in ("light", "dark"):
        tab.prefer(prefers_color_scheme=scheme)
        tab.open(page)
        tab.press("a", "b", "1", "a")
        assert axe(tab) == []
    for width in (1280, 390):
        tab.open(page, width=width)
        assert tab.run("document.documentElement.scrollWidth") <= width
    tab.prefer()
    tab.run("find('save').focus()")
    assert tab.run("getComputedStyle(find('save')).outlineStyle") != "none"


def test_the_command_writes_pictures_and_the_page(tmp_path, obygaze):
    films = tmp_path / "films"
    films.mkdir()
    write_clip(films / "Juno.mp4", "S", seconds=3, width=640, height=360)
    obygaze("manifests", "import", "folder", films, "--every", 1, "-o", tmp_path / "mine", code=0)
    page = tmp_path / "labels.html"
    draw = ("features", "thumbnails", tmp_path / "mine", "--videos", films)
    draw += ("-o", tmp_path / "pictures", "--levels", "calm,tense", "--page")
    assert json.loads(obygaze(*draw, page, "--json", code=0).stdout)["made"] == 3
    html = page.read_text(encoding="utf-8")
    assert '"tense"' in html
    assert "connect-src" not in html
    with Image.open(tmp_path / "pictures/Juno-1s.jpg") as picture:
        assert picture.size == (480, 270)
    refused(obygaze(*draw, page), "labels.html")
    refused(obygaze(*draw, tmp_path / "labels.csv"), ".html", code=2)
    obygaze(*draw, page, "--overwrite", code=0)
