"""A film on one sheet: recounted numbers, and text that neither overlaps nor leaves the sheet."""

import re
from html import unescape
from itertools import combinations

import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import roc_auc_score

import obygaze_models as om
from obygaze_features.annotations.timelines import Film, Segment, Timelines
from obygaze_features.common.figures import figure_style
from obygaze_models.data.example import example_path
from obygaze_models.data.warnings import RunWarning
from obygaze_models.report.annotation import open_annotation
from obygaze_models.report.annotators import load_annotators
from obygaze_models.report.fact_sheet import SHAPES, FilmFacts, draw_sheet
from obygaze_models.report.headline import headline
from obygaze_models.report.runs import default_run, prepare_runs, score_tables
from tests.conftest import run_obygaze
from tests.kit.files import refused
from tests.kit.predicted import fits_of
from tests.kit.world2 import make_world2
from tests.report.conftest import with_record

SEATTLE = "tt0108160"
LONG = "A Title That Goes On and On, Longer Than Any Sheet of Paper Is Wide, and Then Some (1999)"


@pytest.fixture(scope="module")
def labels():
    return om.load_example()


def texts_of(path):
    """Return the text that an SVG shows, and its text for screen readers."""
    svg = path.read_text(encoding="utf-8")
    assert "<script" not in svg
    [spoken] = re.findall(r"<desc>(.*?)</desc>", svg, re.S)
    return [unescape(text) for text in re.findall(r"<text[^>]*>(.*?)</text>", svg)], spoken


def test_a_sheet_has_the_numbers_of_its_film(labels, tmp_path):
    arguments = ("report", example_path("minutes"), "--film", "sleepless in seattle")
    assert run_obygaze(*arguments, "-o", tmp_path / "film.svg").exit_code == 0
    texts, spoken = texts_of(tmp_path / "film.svg")
    own = labels.groups == SEATTLE
    sure = {name: codes == "S" for name, codes in labels.y.items()}
    counts = [int((marks & own).sum()) for marks in sure.values()]
    agreed = int(np.logical_and(*sure.values())[own].sum())
    assert f"Of {own.sum()} minutes, annotator1 marks {counts[0]} as Sure and annotator2 " \
        f"{counts[1]}; {agreed} are Sure to both." in texts  # fmt: skip
    for marks in sure.values():
        by_film = [marks[labels.groups == film].mean() for film in labels.titles]
        assert {f"{marks[own].mean():.0%}", f"{np.mean(by_film):.0%}"} <= {*texts}
    shares = {
        film: np.mean([m[labels.groups == film].mean(axis=0) for m in labels.concepts.values()], 0)
        for film in labels.titles
    }
    first = np.argsort(-shares[SEATTLE], kind="stable")[:5]
    for column, values in (("film", shares[SEATTLE]), ("mean", np.mean([*shares.values()], 0))):
        at = texts.index(column)
        assert texts[at + 1 : at + 6] == [f"{values[concept]:.0%}" for concept in first]
    for concept in first:
        name = labels.concept_names[concept]
        assert name in texts
        assert f"{name}: {shares[SEATTLE][concept]:.0%}." in spoken
    assert "Grey" not in spoken


def test_a_sheet_says_how_the_model_ranks_its_film(annotated, tmp_path):
    run = annotated["films"]
    film = next(iter(run.record.films.titles or {clip.film: "" for clip in run.clips().values()}))
    path = om.fact_sheet([run], film, tmp_path / "film.svg")
    texts, spoken = texts_of(path)
    assert "model" in texts
    own = run.record.headline_model
    film_of = dict(zip(run.clips()["id"], run.clips()["film"], strict=True))
    areas = {}
    for name in sorted({*film_of.values()}):
        fits = [fit for fit in fits_of(run) if fit.model == own]
        rows = [
            (label, value)
            for fit in fits
            for clip, label, value in zip(fit.ids, fit.labels, fit.probabilities, strict=True)
            if film_of[clip] == name
        ]
        areas[name] = roc_auc_score(*zip(*rows, strict=True))
    assert f"higher {areas[film]:.0%} of the time ({np.mean([*areas.values()]):.0%} on" in spoken
    for code, is_scored in (("synthetic", False), ("unknown-origin", True)):
        void = with_record(run, warnings=[RunWarning(code, "", "it is random.")])
        path = om.fact_sheet([void], film, tmp_path / f"{code}.svg")
        texts, spoken = texts_of(path)
        drawn = " ".join(" ".join(texts).split())
        assert "Grey: how likely each" in drawn
        assert ("Not a real result: clips or features are synthetic." in drawn) != is_scored
        assert ("of the time" in spoken) == is_scored


def facts(source, film):
    if isinstance(source, list):
        runs = prepare_runs(source)
        return FilmFacts(headline(score_tables(runs), default_run(runs), None), film)
    opened = open_annotation(source)
    return FilmFacts(headline([], opened, load_annotators(opened)), film)


def three(names):
    """Return timelines of three annotators, of films with a long title."""
    segments = [
        Segment(film, name, 60 * at, 60 * at + 60, level, ("Look", "Expression of emotion"))
        for film in ("f1", "f2")
        for name in names
        for at, level in enumerate(("EN", "HN", "S", "S") if name == names[0] else ("EN",) * 4)
    ]
    films = {film: Film(LONG, 240) for film in ("f1", "f2")}
    return Timelines.of("three", segments, films=films)


@pytest.fixture(
    params=["example", "three annotators", "seven annotators", "a model", "own levels"]
)  # fmt: skip
def content(request, tmp_path, results):
    match request.param:
        case "example":
            return facts(example_path("minutes"), "tt2267998")
        case "three annotators":
            return facts(three(["anna", "bert", "somebody with a very long name"]), "f1")
        case "seven annotators":
            return facts(three([f"annotator {number}" for number in range(7)]), "f2")
        case "a model":
            return facts([results["films"]], "tt1")
    world = make_world2(tmp_path)
    source = open_annotation(world.manifest)
    return facts(world.manifest, next(c.film for c in source.clips.values() if c.film))


@pytest.mark.parametrize("shape", SHAPES)
def test_no_letters_touch_or_leave_the_sheet(content, shape):
    figure = draw_sheet(content, shape)
    with figure_style():
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.text import Text

        FigureCanvasAgg(figure).draw()
        beyond = {
            tick.label1
            for axes in figure.axes
            for tick in axes.xaxis.get_major_ticks()
            if not axes.get_xlim()[0] <= tick.get_loc() <= axes.get_xlim()[1]
        }
        texts = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text()]
        drawn = [text for text in texts if text not in beyond]
        boxes = {text: text.get_window_extent() for text in drawn}
    width, height = figure.bbox.size
    for text, box in boxes.items():
        assert 0 < box.x0 < box.x1 < width, text
        assert 0 < box.y0 < box.y1 < height, text
    touching = [
        (a.get_text(), b.get_text())
        for (a, box_a), (b, box_b) in combinations(boxes.items(), 2)
        if box_a.shrunk(0.95, 0.8).overlaps(box_b.shrunk(0.95, 0.8))
    ]
    assert touching == []
    assert content.title in {" ".join(text.get_text().split()) for text in drawn}


def test_a_sheet_is_a_page_or_a_slide(tmp_path):
    source = example_path("minutes")
    om.fact_sheet(source, "Juno", tmp_path / "film.pdf")
    page = re.search(
        rb"/MediaBox \[ 0 0 ([\d.]+) ([\d.]+) \]", (tmp_path / "film.pdf").read_bytes()
    )
    sides = [float(side) / 72 * 25.4 for side in page.groups()]
    assert sides == pytest.approx([210, 148], abs=0.1)
    slide = om.fact_sheet(source, "Juno", tmp_path / "film.png", shape="16:9")
    with Image.open(slide) as image:
        assert image.width / image.height == pytest.approx(16 / 9, abs=0.01)


def test_impossible_sheets_are_refused(tmp_path):
    source = example_path("minutes")
    command = ("report", source, "--film", "Juno")
    refused(run_obygaze(*command), "-o film.pdf", code=2)
    refused(run_obygaze(*command, "-o", tmp_path / "x.html"), ".pdf", code=2)
    refused(run_obygaze(*command, "-o", tmp_path / "x.svg", "--title", "x"), "--title", code=2)
    wrong = ("report", source, "--film", "Junno", "-o", tmp_path / "x.svg")
    refused(run_obygaze(*wrong), "did you mean Juno", code=2)
    refused(run_obygaze("report", source, "--shape", "16:9", "-o", "x.html"), "--film", code=2)
    assert not [*tmp_path.iterdir()]


def test_hostile_names_are_drawn_as_text(hostile_run, tmp_path):
    run, texts = hostile_run
    film = run.clips()["film"].iloc[0]
    path = om.fact_sheet([run], film, tmp_path / "film.svg")
    svg = path.read_text(encoding="utf-8")
    assert "onerror=hit()>" not in svg
    assert "&lt;script" in svg or texts["title"] not in unescape(svg)
