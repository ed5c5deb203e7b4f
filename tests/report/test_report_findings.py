"""What a page says first: its title by a rule, a page of numbers, and a page of many films."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import r2_score

import obygaze_models as om
from obygaze_features.manifests import Manifest
from tests.report.conftest import Page, predicted, shown

RUNS = 60
TITLES = {
    "above": "the model tells Sure and Easy Negative clips apart better than a guess",
    "unclear": "the model does not clearly tell Sure and Easy Negative clips apart",
    "below": "the model tells Sure and Easy Negative clips apart worse than a guess",
    "scored": "(F1 positive) at telling Sure and Easy Negative clips apart",
    "few": "Too few films to say whether frames can tell Sure and Easy Negative clips apart",
}


@pytest.mark.parametrize(
    ("verdict", "films", "signal"),
    [
        ("above", 6, 0.2),
        ("unclear", 6, 0.0),
        ("below", 6, -0.2),
        ("scored", 6, 0.2),
        ("few", 4, 0.2),
        ("above", 30, 0.2),
    ],
)
def test_the_title_says_what_was_found(tmp_path, verdict, films, signal):
    score = "f1" if verdict == "scored" else "auroc"
    run = predicted(tmp_path, films=films, signal=signal, score=score)
    page = Page(om.report(run, tmp_path / "page.html"))
    assert page.title.endswith(TITLES[verdict])
    assert ("no use yet" in page.text) == (signal <= 0)
    assert page.html.count('class="point"') == (verdict == "above")
    assert (page.html.count("<circle") > films) == (films > 20)
    assert ("it needs 5 films" in page.text) == (verdict == "few")


@pytest.fixture
def rated(world2, run_world2, tmp_path):
    manifest = Manifest.load(world2.manifest)
    moods = [str(number % 7) for number in range(len(manifest))]
    items = replace(manifest.items, extra={"mood": moods})
    replace(manifest, items=items).save(tmp_path / "rated")
    options = {"manifest": tmp_path / "rated", "column": "mood", "estimators": ("ridge",)}
    run = run_world2(tmp_path / "run", protocol="leave-film-out", split="", **options)
    om.report(run, tmp_path / "page.html")
    return run


def test_a_page_of_numbers_has_the_numbers_of_its_table(rated, tmp_path):
    page = Page(tmp_path / "page.html")
    table = rated.predictions
    orders = []
    for film, own in table.groupby(table["id"].map(rated.column("title"))):
        true = own["label"]
        value = own["value"]
        order = stats.spearmanr(true, value).statistic
        orders.append(order)
        numbers = [true.mean(), value.mean(), order, r2_score(true, value)]
        error = (value - true).abs().mean()
        of_mean = (true - true.mean()).abs().mean()
        assert page.row(film)[1:] == [*map(shown, numbers), f"{error:.2f} vs {of_mean:.2f}"]
    assert f"Spearman {shown(np.mean(orders))} (" in page.text
    [view] = page.data["views"]
    drawn = [*view["label"], *view["p"]]
    assert view["range"] == pytest.approx([min(drawn), max(drawn)], abs=0.001)


def test_the_numbers_farthest_off_are_listed_first(tab, rated, tmp_path):
    tab.prefer()
    tab.open(tmp_path / "page.html")
    tab.choose("choose-order", "wrong")
    while not tab.run("document.getElementById('show-more').hidden"):
        tab.click("#show-more")
    differences = tab.texts("#rows td:last-child")
    distances = [abs(float(text.replace("−", "-"))) for text in differences]
    assert len(distances) == 24
    assert distances == sorted(distances, reverse=True)


def test_many_films_are_sorted_and_shown_on_request(tab, tmp_path):
    run = predicted(tmp_path, films=40, signal=0.1)
    tab.prefer()
    tab.open(om.report(run, tmp_path / "page.html"))
    rows = "[...document.querySelectorAll('.films tbody tr')]"
    shown_rows = f"{rows}.filter((row) => row.checkVisibility()).length"
    assert tab.run(shown_rows) == 20
    tab.click("#all-films")
    assert tab.run(shown_rows) == 40
    values = tab.texts(".films tbody td:last-child data", "value")
    assert values == sorted(values, key=float, reverse=True)
    tab.click(".films thead [aria-sort] button")
    assert tab.texts(".films tbody td:last-child data", "value") == sorted(values, key=float)
    assert tab.run("document.querySelector('[aria-sort]').ariaSort") == "ascending"
    tab.click(".films thead button")
    names = tab.texts(".films tbody th")
    assert names == sorted(names)


@pytest.mark.night
@pytest.mark.parametrize("tests", [1, 5])
def test_noise_is_a_finding_in_at_most_five_of_a_hundred_runs(tests, tmp_path):
    """Each page has as many rows as there are runs on the same labels, all of them noise."""
    claims = 0
    for number in range(RUNS):
        runs = []
        for test in range(tests):
            seed = number * tests + test
            runs.append(predicted(tmp_path, films=12, signal=0, seed=seed, name=f"noise {test}"))
        page = Page(om.report(runs, tmp_path / "page.html", overwrite=True))
        claims += page.html.count('class="point"') > 0
    assert claims <= RUNS * 0.05
