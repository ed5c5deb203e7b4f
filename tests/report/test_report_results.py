"""The table of the first screen: each run's question, score, guess and verdict."""

import numpy as np
import pytest
from msgspec import structs
from sklearn.metrics import roc_auc_score

import obygaze_models as om
from obygaze_models.data.example import copy_example
from obygaze_models.experiments.experiment import load_experiment
from obygaze_models.experiments.run import run_experiment
from obygaze_models.report.findings import share_in_words
from tests.report.conftest import Page, render_report, with_record


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("example")
    copy_example(folder / "moby", overwrite=False)
    return [
        run_experiment(load_experiment(folder / f"moby/{name}.toml"), folder / name)
        for name in ("level", "length", "concepts")
    ]


@pytest.fixture(scope="module")
def page(runs):
    return Page(render_report(runs, title="What is said in 20 films"))


def rows_of(page, reads):
    """Return the cells of the rows of the table that read one kind of feature."""
    return {row[0]: row[2:] for row in page.rows if len(row) == 5 and row[1] == reads}


@pytest.mark.gate
def test_a_page_of_several_runs_covers_them_all(page, runs):
    words, count = rows_of(page, "words"), rows_of(page, "number of words")
    question = "Is a minute Sure rather than Easy Negative?"
    level, length, concepts = runs
    for cells, run in ((words[question], level), (count[question], length)):
        scores = run.model_scores[0]
        low, high = scores.interval["auroc"]
        assert cells[1] == f"{scores.mean['auroc']:.2f} ({low:.2f}–{high:.2f})"
        assert cells[2] == "0.50"
        assert cells[0].endswith("; better than chance")
    areas = {e.test.partition(" ")[0]: e.mean["auroc"] for e in concepts.model_scores}
    best, lowest = (pick(areas, key=areas.__getitem__) for pick in (max, min))
    assert words[f"Does a minute have {best}? (best of 6)"][1].startswith(f"{areas[best]:.2f} (")
    assert words[f"Does a minute have {lowest}? (lowest of 6)"][1].startswith("0.55 (")
    compared = om.compare(level.folder, length.folder).comparisons[0].scores["auroc"].difference
    low, high = compared.interval
    text = f"is {-compared.value:.2f} higher than from the number of words (95% interval "
    assert text in page.text.partition("On the same 1,766 minutes")[2]
    assert low < 0 < high
    assert f"+{-low:.2f}, paired by film; not a clear difference)" in page.text
    top = page.text.partition("What these results do not show")[2].partition("Film explorer")[0]
    assert question in top


@pytest.mark.gate
def test_scores_without_wordless_minutes_use_the_other_clips(page, runs):
    data = om.load_example()
    silent = {clip for clip, row in zip(data.ids, data.X, strict=True) if not row.any()}
    run = runs[0]
    table = run.predictions
    assert {*run.clips.loc[run.clips["blank"], "id"]} & {*table["id"]} == silent & {*table["id"]}
    spoken = table[~table["id"].isin(silent)]
    films = spoken["id"].str.partition("-")[0]
    areas = [roc_auc_score(own["label"], own["probability"]) for _, own in spoken.groupby(films)]
    cells = rows_of(page, "words")[f"… without the {run.clips['blank'].sum()} wordless minutes"]
    assert cells[1].startswith(f"{np.mean(areas):.2f} (")
    cells = rows_of(page, "number of words")["… without the 162 wordless minutes"]
    assert cells[0].endswith("; not clearly better than chance")


@pytest.mark.gate
def test_a_single_score_needs_no_table(results, runs):
    alone = results["films"]
    assert "A guess knows" not in Page(render_report([alone])).text
    labels = rows_of(Page(render_report([runs[2]])), "words")
    assert {*labels} == {
        "Does a minute have Speech? (best of 6)",
        "Does a minute have Look? (lowest of 6)",
    }


@pytest.mark.parametrize(
    ("part", "total", "words"),
    [(277, 862, "one in three"), (1, 3, "1 of 3"), (50, 100, "half"), (44, 100, "44%"),
     (0, 100, "0%"), (100, 100, "100%")],
)  # fmt: skip
def test_a_share_near_a_simple_fraction_is_written_so(part, total, words):
    assert share_in_words(part, total) == words


def test_rows_name_their_score_and_their_model_where_they_differ(results):
    films, classes = results["films"], results["classes"]
    page = Page(render_report([films, classes]))
    heads = next(row for row in page.rows if row[:1] == ["Question"])
    assert heads[3] == "Score"
    scores = [row[3] for row in page.rows if len(row) == 5 and row[0].startswith("Is a clip")]
    assert [score.partition(" 0.")[0] for score in scores] == ["AUROC", "F1 macro"]
    other = structs.replace(films.experiment, headline="pcbm-logistic")
    twice = Page(render_report([films, with_record(films, experiment=other)]))
    inputs = [row[1] for row in twice.rows if len(row) == 5 and row[0].startswith("Is a clip")]
    assert inputs == ["frames, by mlp", "frames, by pcbm-logistic"]
    assert next(row for row in twice.rows if row[:1] == ["Question"])[3] == "AUROC"
