"""Who marks more in which film, and what is marked: shares, tables and figures."""

import numpy as np
import pandas as pd
import pytest

from obygaze_features.annotations.figures import MAX_FILMS, levels_by_film
from obygaze_features.annotations.film_shares import FilmShares, MarkedFilms, count_shares
from obygaze_features.errors import AnnotationError
from obygaze_features.manifests import LabelSet, Level
from obygaze_models.data.example import example_path, load_example
from tests.conftest import run_obygaze
from tests.kit.files import csv_rows
from tests.kit.floats import close

LOW, HIGH, MARKS = "dim", "pitch dark", ("rain, snow", "door: open")


def draw(annotators, clips=60, films=3):
    """Return random labels with custom levels; each annotator skips a few clips."""
    chance = np.random.default_rng(annotators)
    film_of = {f"c{row:02}": f"f{row % films}" for row in range(clips)}
    sets = []
    for number in range(annotators):
        ids = [clip for clip in film_of if chance.random() < 0.9]
        levels = [str(chance.choice([LOW, HIGH])) for _ in ids]
        concepts = [tuple(name for name in MARKS if chance.random() < 0.4) for _ in ids]
        sets.append(LabelSet(f"a{number}", ids, levels, concepts))
    return sets, film_of


@pytest.mark.parametrize("annotators", [1, 2, 3])
def test_shares_equal_those_of_the_full_label_table(annotators):
    sets, film_of = draw(annotators)
    marked = count_shares(sets, [Level(HIGH, "Dark")], film_of, {"f0": "First"})
    rows = [
        {"who": labels.name, "clip": clip, "film": film_of[clip],
         "high": labels.level_of[clip] == HIGH,
         **{name: name in labels.concepts_of[clip] for name in MARKS}}
        for labels in sets for clip in labels.ids
    ]  # fmt: skip
    table = pd.DataFrame(rows)
    counted = table[table.groupby("clip")["who"].transform("size") >= min(2, annotators)]
    by_film = counted.groupby(["film", "who"])[["high", *MARKS]].mean()
    clips = counted.groupby("film")["clip"].nunique()
    for film in marked.films:
        expected = by_film.loc[film.film]
        assert (film.clips, film.title) == (
            clips[film.film],
            {"f0": "First"}.get(film.film, film.film),
        )
        assert dict(film.level) == close(expected["high"].to_dict())
        assert dict(film.concepts) == close(expected[[*MARKS]].mean().to_dict())
    high = by_film["high"].unstack()
    gaps = high["a0"] - high["a1"] if annotators == 2 else high.max(axis=1) - high.min(axis=1)
    order = [film.film for film in marked.by_difference]
    assert sorted(gaps[order], reverse=True) == gaps[order].tolist()
    if annotators == 1:
        with pytest.raises(AnnotationError, match="no film has two annotators to compare"):
            levels_by_film(marked)


def test_figures_state_every_share_and_drop_the_smallest_differences():
    sets, film_of = draw(2)
    marked = count_shares(sets, [Level(HIGH, "Dark")], film_of, {})
    label = levels_by_film(marked).get_label()
    for film in marked.films:
        assert all(f"{name} {share:.0%}" in label for name, share in film.level.items())
    films = [FilmShares(f"f{n}", f"Film {n}", 9, {"a": n / 99, "b": 0.0}, {}) for n in range(40)]
    figure = levels_by_film(MarkedFilms("Dark", films))
    assert "30 of 40 films: largest differences" in figure.axes[0].get_xlabel()
    titles = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert titles == [f"Film {n}" for n in range(39, 39 - MAX_FILMS, -1)]


def test_a_film_that_both_mark_as_much_is_under_its_own_heading():
    shares = {"x": (0.4, 0.2), "y": (0.3, 0.3), "z": (0.1, 0.2)}
    films = [FilmShares(k, k, 9, {"ann": a, "ben": b}, {}) for k, (a, b) in shares.items()]
    figure = levels_by_film(MarkedFilms("Dark", films))
    axes = figure.axes[0]
    headings = [text.get_text() for text in axes.texts]
    assert headings == [
        "ann marks more: 1 film", "both mark equally often: 1 film", "ben marks more: 1 film"
    ]  # fmt: skip
    tied = [
        line for line in axes.lines if line.get_marker() == "o" and [*line.get_xdata()] == [0.3]
    ]
    assert [line.get_markersize() for line in tied] == [10, 6]  # both are visible


def test_titles_keep_their_year_only_where_two_films_share_one():
    of_film = [FilmShares(film, title, 9, {"a": 0.4, "b": 0.2}, {}) for film, title in
               (("x", "Crash (1996)"), ("y", "Crash (2004)"), ("z", "Juno (2007)"))]  # fmt: skip
    labels = levels_by_film(MarkedFilms("Sure", of_film)).axes[0].get_yticklabels()
    assert [label.get_text() for label in labels] == ["Crash (1996)", "Crash (2004)", "Juno"]


def test_the_command_writes_each_films_shares(tmp_path):
    example = load_example()
    run_obygaze("annotations", "agreement", example_path("minutes"), "-o", tmp_path / "all")
    levels = {row["title"]: row for row in csv_rows(tmp_path / "all/level_shares.csv")}
    concepts = {row["film"]: row for row in csv_rows(tmp_path / "all/concept_shares.csv")}
    assert next(iter(levels)) == "The Help (2011)"
    assert list(levels)[-1] == "Gone Girl (2014)"
    for film, title in example.titles.items():
        own = example.groups == film
        for name, codes in example.y.items():
            assert float(levels[title][name]) == pytest.approx((codes[own] == "S").mean(), abs=1e-6)
        shares = np.mean([marks[own].mean(axis=0) for marks in example.concepts.values()], axis=0)
        for name, share in zip(example.concept_names, shares, strict=True):
            assert float(concepts[film][name]) == pytest.approx(share, abs=1e-6)
