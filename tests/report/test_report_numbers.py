"""The page's numbers, recomputed from CSV files with pandas, scikit-learn and SciPy."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.metrics import cohen_kappa_score, f1_score, roc_auc_score

from tests.report.conftest import EIGHT, Page, nominal_alpha

FILMS = len(EIGHT)
CODES = ["EN", "HN", "NS", "S"]


@pytest.fixture(scope="module")
def page(example):
    return Page(example)


def only_both_only(first, second):
    """Count what only the first marked, what both did, and what only the second did, as shown."""
    counts = (first & ~second).sum(), (first & second).sum(), (second & ~first).sum()
    return [str(count) for count in counts]


@pytest.fixture(scope="module")
def clips(example_runs):
    return pd.read_csv(example_runs / "level/clips.csv", keep_default_na=False)


@pytest.fixture(scope="module")
def tables(example_runs):
    """The tested clips of each run, with their films."""
    found = {}
    for name in ("level", "length", "concepts"):
        table = pd.read_csv(example_runs / name / "predictions.csv")
        table["film"] = table["id"].str.split("-").str[0]
        is_negative = table["label"].str.contains("^negative|^without")
        table["positive"] = (~is_negative).astype(int)
        found[name] = table
    return found


@pytest.fixture(scope="module")
def full(tables, clips):
    """The tables of both runs on levels, without empty minutes."""
    empty = clips.loc[clips["blank"].astype(str) == "True", "id"]
    found = {name: tables[name][~tables[name]["id"].isin(empty)] for name in ("level", "length")}
    assert len(tables["level"]) - len(found["level"]) == 69
    return found


def by_film(table, score):
    return table.groupby("film").apply(lambda own: score(own["positive"], own["probability"]))


def percent(value):
    return f"{100 * value:.0f}"


def error(values):
    """The error of a mean over films that were left out in turn (Nadeau and Bengio)."""
    return np.sqrt(values.var(ddof=1) * (1 / FILMS + 1 / (FILMS - 1)))


def interval(values):
    half = stats.t.ppf(0.975, FILMS - 1) * error(values)
    return f"{percent(values.mean() - half)} to {percent(values.mean() + half)}"


def shown(value):
    return f"{value:.2f}".replace("-", "−")


def test_scores_are_means_over_films(page, tables):
    for name, reads, number in (("level", "words", 0), ("length", "number of words", 0)):
        table = tables[name]
        areas = by_film(table, roc_auc_score)
        f1 = by_film(table, lambda y, p: f1_score(y, p > 0.5))
        share = table.groupby("film")["positive"].mean()
        always = 2 * share / (1 + share)
        row = page.row(reads, number)
        assert row[1] == f"{percent(areas.mean())}% {interval(areas)}"
        above = f"{(areas > 0.5).sum()} of {FILMS}"
        assert row[2:] == ["–", above, f"{shown(f1.mean())} vs {shown(always.mean())}"]
    assert f"How sure {len(tables['level'])} minutes of {FILMS} films, {FILMS} fits" in page.text


def test_the_headline_has_the_numbers_of_the_table(page, tables, clips, levels):
    table = tables["level"]
    areas = by_film(table, roc_auc_score)
    times = f"higher {percent(areas.mean())} times in 100 (95% interval {interval(areas)}"
    assert f"{times}; 50 is a guess; above 50 in {(areas > 0.5).sum()} of" in page.text
    first, second = (own == "S" for own in levels)
    for part in (
        f"annotator1 marks Sure in {percent(first.mean())}% of the minutes",
        f"annotator2 {percent(second.mean())}%; both in {percent((first & second).mean())}%",
    ):
        assert part in page.text
    best = clips.set_index("film")["title"][areas.idxmax()].iloc[0]
    assert f"Told apart best in {best} ({percent(areas.max())}%)" in page.text


def test_scores_without_empty_minutes_leave_them_out(page, full):
    for number, own in enumerate(full.values()):
        areas = by_film(own, roc_auc_score)
        row = page.row("… without empty minutes", number)
        assert row[1] == f"{percent(areas.mean())}% {interval(areas)}"


def test_findings_are_above_chance_by_holms_test(page, tables, full):
    scored = [own for _, own in tables["concepts"].groupby("test")]
    scored += [tables["level"], tables["length"], *full.values()]
    p_values = []
    for own in scored:
        areas = by_film(own, roc_auc_score)
        p_values.append(2 * stats.t.sf(abs(areas.mean() - 0.5) / error(areas), FILMS - 1))
    open_points = [p for n, p in enumerate(sorted(p_values)) if p * (len(p_values) - n) > 0.05]
    assert page.html.count('class="point open"') == len(open_points)


def test_inputs_are_compared_film_by_film(page, tables):
    words, length = (by_film(tables[name], roc_auc_score) for name in ("level", "length"))
    cell = page.row("words − number of words paired by film")[0]
    low, high = interval(words - length).split(" to ")
    assert cell == f"+{percent((words - length).mean())} {low.replace('-', '−')} to +{high}"


def test_each_concept_has_its_score(page, tables):
    scores = {
        test.removesuffix(" vs all without"): by_film(own, roc_auc_score)
        for test, own in tables["concepts"].groupby("test")
    }
    ranked = sorted(scores, key=lambda name: scores[name].mean(), reverse=True)
    assert [row[0] for row in page.rows if row and row[0] in scores] == ranked
    for name, areas in scores.items():
        assert page.row(name)[1].startswith(f"{percent(areas.mean())}% ")


@pytest.fixture(scope="module")
def levels(clips):
    return [clips[f"label of annotator{number}"] for number in (1, 2)]


@pytest.fixture(scope="module")
def ranks(levels):
    return np.array([own.map(CODES.index) for own in levels])


def test_annotators_are_counted_and_compared(page, levels, ranks):
    first, second = (own == "S" for own in levels)
    row = page.row("Sure", 0)
    assert row[1:4] == only_both_only(first, second)
    assert row[-1].startswith(f"{shown(nominal_alpha(first, second))} ")
    counts = np.bincount(ranks.ravel())
    chance = (counts * (counts - 1)).sum() / (ranks.size * (ranks.size - 1))
    row = page.row("the same level of 4")
    equal = (levels[0] == levels[1]).mean()
    assert row[0] == f"{percent(equal)}%; by chance {percent(chance)}%"
    assert row[-1].startswith(f"{shown(nominal_alpha(*ranks))} ")


def test_alpha_has_its_jackknife_interval_over_films(page, ranks, clips):
    films = clips["film"]
    whole = nominal_alpha(*ranks)
    left_out = [nominal_alpha(*ranks[:, films != film]) for film in films.unique()]
    pseudo = FILMS * whole - (FILMS - 1) * np.array(left_out)
    half = stats.t.ppf(0.975, FILMS - 1) * pseudo.std(ddof=1) / np.sqrt(FILMS)
    ends = f"{shown(whole - half)} to {shown(whole + half)}"
    assert page.row("the same level of 4")[-1] == f"{shown(whole)} {ends}"


def test_films_have_their_numbers(page, ranks, clips, tables):
    assert page.row("Film")[0].startswith("annotator1, annotator2, the model")
    scores = by_film(tables["level"], roc_auc_score)
    titles = dict(zip(clips["film"], clips["title"], strict=True))
    order = [row[0] for row in page.rows if row and row[0] in titles.values()]
    ranked = [titles[film] for film in scores.sort_values(ascending=False).index]
    assert order[0] == ranked[0]
    for film in ("tt0467406", "tt0120338"):
        own = clips["film"] == film
        codes = ranks[:, own]
        row = page.row(titles[film])
        assert row[2] == f"{percent((clips['level'][own] == 'S').mean())}%"
        assert row[3] == f"{percent((codes[0] == codes[1]).mean())}%"
        assert row[4] == shown(nominal_alpha(*codes))
        positives = tables["level"]["positive"][tables["level"]["film"] == film]
        assert row[5] == f"{positives.sum()} + {(1 - positives).sum()}"
        assert row[6] == f"{percent(scores[film])}%"


def test_concepts_are_counted_by_level_and_annotator(page, clips):
    for name, sense in (("Speech", "said"), ("Narratology", "told")):
        row = page.row(f"{name} {sense}", cells=9)
        shows = clips["concepts"].str.contains(name)
        shares = [f"{percent(shows[clips['level'] == code].mean())}%" for code in CODES[1:]]
        assert row[:3] == shares
        first, second = (clips[f"concepts of annotator{n}"].str.contains(name) for n in (1, 2))
        assert row[4:7] == only_both_only(first, second)


def test_levels_and_verdicts_are_crossed(page, levels, tables):
    cells = pd.crosstab(*levels).reindex(CODES, columns=CODES, fill_value=0)
    named = dict(zip(CODES, ("Easy Negative", "Hard Negative", "Not Sure", "Sure"), strict=True))
    for code, name in named.items():
        assert page.row(name, cells=4) == [f"{count:,}" for count in cells.loc[code]]
    means = tables["level"].groupby("id")[["positive", "probability"]].mean()
    called = means["probability"] > 0.5
    for name, label in (("Sure", 1), ("Easy Negative", 0)):
        own = called[means["positive"] == label]
        assert page.row(name, cells=2) == [str(own.sum()), str((~own).sum())]


def test_the_model_is_compared_with_each_annotator(page, clips, tables):
    means = tables["level"].groupby("id")["probability"].mean()
    votes = clips.set_index("id").join(means, how="inner").filter(regex="^label of|probability")
    votes = votes[votes.iloc[:, :2].isin(["S", "EN"]).all(axis=1)]
    first, second = (votes[f"label of annotator{number}"] == "S" for number in (1, 2))
    kappas = [cohen_kappa_score(own, votes["probability"] > 0.5) for own in (first, second)]
    assert page.row("the model") == [*map(shown, kappas)]
    people, model = shown(cohen_kappa_score(first, second)), shown(np.mean(kappas))
    assert f"annotators: {people}. Of the model with them: {model}." in page.text


def test_the_explorer_has_each_prediction(page, tables):
    data = page.data
    view = data["views"][data["view"]]
    ids = [data["ids"][row] for row in data["tested"][view["at"]]]
    means = tables["level"].groupby("id")["probability"].mean()
    assert sorted(ids) == sorted(means.index)
    assert np.abs(np.array(view["p"][0]) / 1000 - means[ids].to_numpy()).max() <= 0.0005001
    assert view["called"] == (means[ids] > 0.5).astype(int).tolist()
