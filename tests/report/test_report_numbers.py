"""The page's numbers, recomputed from CSV files with pandas, scikit-learn and SciPy."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.metrics import cohen_kappa_score, f1_score, roc_auc_score

import obygaze_models as om
from tests.report.conftest import EIGHT, Page, nominal_alpha, shown

FILMS = len(EIGHT)
LEVELS = {"EN": "Easy Negative", "HN": "Hard Negative", "NS": "Not Sure", "S": "Sure"}


@pytest.fixture(scope="module")
def page(example):
    return Page(example)


@pytest.fixture(scope="module")
def clips(example):
    return pd.read_csv(example.parent / "level/clips.csv", keep_default_na=False)


@pytest.fixture(scope="module")
def levels(clips):
    return [clips[f"label of annotator{number}"] for number in (1, 2)]


@pytest.fixture(scope="module")
def ranks(levels):
    return np.array([own.map([*LEVELS].index) for own in levels])


@pytest.fixture(scope="module")
def tables(example, clips):
    """The tested clips of each run, with their films; also those without empty minutes."""
    found = {}
    for name in ("level", "length", "concepts"):
        table = pd.read_csv(example.parent / name / "predictions.csv")
        table["film"] = table["id"].str.split("-").str[0]
        table["positive"] = ~table["label"].str.contains("^negative|^without")
        found[name] = table
    empty = clips.loc[clips["blank"].astype(str) == "True", "id"]
    for name in ("level", "length"):
        is_empty = found[name]["id"].isin(empty)
        found[f"{name}, full"] = found[name][~is_empty]
    assert len(found["level"]) - len(found["level, full"]) == 69
    return found


def by_film(table, score=roc_auc_score):
    return table.groupby("film").apply(lambda own: score(own["positive"], own["probability"]))


def percent(value):
    return f"{100 * value:.0f}"


def interval(values):
    """The interval of a mean over films that were left out in turn (Nadeau and Bengio)."""
    others = FILMS - 1
    error = np.sqrt(values.var(ddof=1) * (1 / FILMS + 1 / others))
    half = stats.t.ppf(0.975, others) * error
    mean = values.mean()
    return f"{percent(mean - half)} to {percent(mean + half)}"


def score_cell(areas):
    return f"{percent(areas.mean())}% {interval(areas)}"


def films_above_half(areas):
    return f"{(areas > 0.5).sum()} of {FILMS}"


def only_both_only(first, second):
    """Count what only the first marked, what both did, and what only the second did, as shown."""
    marks = [first & ~second, first & second, second & ~first]
    return [str(mark.sum()) for mark in marks]


@pytest.mark.parametrize(("name", "reads"), [("level", "words"), ("length", "number of words")])
def test_scores_are_means_over_films(page, tables, name, reads):
    table = tables[name]
    areas = by_film(table)
    f1 = by_film(table, lambda y, p: f1_score(y, p > 0.5))
    share = table.groupby("film")["positive"].mean()
    always = 2 * share / (1 + share)
    verdicts = f"{shown(f1.mean())} vs {shown(always.mean())}"
    assert page.row(reads)[1:] == [score_cell(areas), films_above_half(areas), verdicts]
    row = page.row("… without empty minutes", name == "length")
    assert row[1] == score_cell(by_film(tables[f"{name}, full"]))


def test_the_first_lines_have_the_numbers_of_the_tables(page, tables, clips, levels):
    table = tables["level"]
    areas = by_film(table)
    full = by_film(tables["level, full"]).mean()
    score = f"{percent(areas.mean())} times in 100 (95% interval {interval(areas)}"
    assert f"higher {score}" in page.text
    assert f"50 is a guess; above 50 in {films_above_half(areas)} films" in page.text
    tested = f"{len(table)} of {len(clips):,} minutes"
    assert f"Tested: {tested} (no Hard Negative or Not Sure)" in page.text
    assert f"nothing to read, AUROC is {percent(full)}%" in page.text

    first, second = (own == "S" for own in levels)
    both = (first & second).mean()
    assert f"Sure: from {percent(second.mean())}% of the minutes by annotator2 to" in page.text
    assert f"{percent(first.mean())}% by annotator1; {percent(both)}% by both" in page.text
    assert f"Low agreement: alpha {shown(nominal_alpha(first, second))}" in page.text

    assert "Not Sure Sure the model says Sure the model is wrong" in page.text
    speech = clips["concepts"][clips["level"] == "S"].str.contains("Speech").mean()
    assert f"Of the Sure minutes, {percent(speech)}% have Speech" in page.text


def test_inputs_are_compared_film_by_film(page, tables):
    differences = by_film(tables["level"]) - by_film(tables["length"])
    cell = page.row("words − number of words paired by film")[0]
    low, high = interval(differences).split(" to ")
    assert cell == f"+{percent(differences.mean())} {low.replace('-', '−')} to +{high}"


def test_each_concept_has_its_score(page, tables):
    scores = {}
    for test, own in tables["concepts"].groupby("test"):
        scores[test.removesuffix(" vs all without")] = by_film(own).mean()
    ranked = sorted(scores, key=scores.get, reverse=True)
    assert [row[0] for row in page.rows if row[0] in scores] == ranked
    for name, area in scores.items():
        assert page.row(name)[1].startswith(f"{percent(area)}% ")


def test_annotators_are_counted_and_compared(page, example, levels, ranks, tmp_path):
    first, second = (own == "S" for own in levels)
    row = page.row("Sure", 0)
    assert row[1:4] == only_both_only(first, second)
    assert row[-1].startswith(f"{shown(nominal_alpha(first, second))} ")
    counts = np.bincount(ranks.ravel())
    equal_pairs = (counts * (counts - 1)).sum()
    chance = equal_pairs / (ranks.size * (ranks.size - 1))
    equal = (levels[0] == levels[1]).mean()
    text = Page(om.report(example.parent / "minutes", tmp_path / "page.html")).text
    assert f"level {percent(equal)} times in 100, and {percent(chance)} times by chance" in text
    assert f"Low agreement: alpha {shown(nominal_alpha(*ranks))} (" in text


def test_films_have_their_numbers(page, ranks, clips, tables):
    assert page.row("Film")[0].startswith("annotator1, annotator2, the model")
    scores = by_film(tables["level"])
    titles = dict(zip(clips["film"], clips["title"], strict=True))
    order = [row[0] for row in page.rows if row[0] in titles.values()]
    assert order[0] == titles[scores.idxmax()]
    for film in ("tt0467406", "tt0120338"):
        own = clips["film"] == film
        sure = (clips["level"][own] == "S").mean()
        positives = tables["level"]["positive"][tables["level"]["film"] == film]
        alpha = nominal_alpha(*ranks[:, own])
        tested = f"{positives.sum()} + {(~positives).sum()}"
        cells = [f"{percent(sure)}%", shown(alpha), tested, f"{percent(scores[film])}%"]
        assert page.row(titles[film])[2:] == cells


def test_concepts_are_counted_by_level_and_annotator(page, clips):
    for name, sense in (("Speech", "said"), ("Narratology", "told")):
        row = page.row(f"{name} {sense}", cells=9)
        shares = clips["concepts"].str.contains(name).groupby(clips["level"]).mean()
        assert row[:3] == [f"{percent(shares[code])}%" for code in ("HN", "NS", "S")]
        first = clips["concepts of annotator1"].str.contains(name)
        second = clips["concepts of annotator2"].str.contains(name)
        assert row[4:7] == only_both_only(first, second)


def test_levels_and_verdicts_are_crossed(page, levels, tables):
    cells = pd.crosstab(*levels).reindex([*LEVELS], columns=[*LEVELS], fill_value=0)
    for code, name in LEVELS.items():
        assert page.row(name, cells=4) == [f"{count:,}" for count in cells.loc[code]]
    means = tables["level"].groupby("id")[["positive", "probability"]].mean()
    called = means["probability"] > 0.5
    for name, label in (("Sure", 1), ("Easy Negative", 0)):
        own = called[means["positive"] == label]
        yes = own.sum()
        assert page.row(name, cells=2) == [str(yes), str(len(own) - yes)]


def test_the_model_is_compared_with_each_annotator(page, clips, tables):
    means = tables["level"].groupby("id")["probability"].mean()
    votes = clips.set_index("id").join(means, how="inner").filter(regex="^label of|probability")
    is_tested = votes.iloc[:, :2].isin(["S", "EN"]).all(axis=1)
    votes = votes[is_tested]
    first = votes["label of annotator1"] == "S"
    second = votes["label of annotator2"] == "S"
    kappas = [cohen_kappa_score(own, votes["probability"] > 0.5) for own in (first, second)]
    assert page.row("the model") == [*map(shown, kappas)]
    people = shown(cohen_kappa_score(first, second))
    model = shown(np.mean(kappas))
    assert f"annotators: {people}. Of the model with them: {model}." in page.text


def test_the_explorer_has_each_prediction(page, tables):
    data = page.data
    shares = tables["level"].groupby("film")["positive"].mean()
    assert data["films"][data["first"]]["id"] == shares.idxmax()
    view = data["views"][data["view"]]
    ids = [data["ids"][row] for row in data["tested"][view["at"]]]
    means = tables["level"].groupby("id")["probability"].mean()
    assert sorted(ids) == sorted(means.index)
    assert view["p"] == pytest.approx(means[ids].tolist(), abs=5.1e-4)
    assert view["called"] == (means[ids] > 0.5).astype(int).tolist()
    distances = np.abs(means[ids] - view["label"])
    assert view["off"] == pytest.approx(distances.tolist(), abs=5.1e-4)
