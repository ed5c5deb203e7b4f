import csv
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import groupby

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.metrics import average_precision_score, f1_score, roc_auc_score

import cli
from obygaze_models.report.page import render_report


class Page(HTMLParser):
    """The text, the tags, and the cells of the first table, row by row."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.text, self.rows, self.cell = [], "", [], False
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.cell = tag in ("td", "th") or (self.cell and tag not in ("tr", "tbody"))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        if tag in ("td", "th"):
            self.cell = False

    def handle_data(self, data):
        self.text += data
        if self.cell:
            self.rows[-1][-1] += data

    def row(self, name):
        return next(row[1:] for row in self.rows if row and row[0] == name)


@pytest.fixture(scope="module")
def page(finished_run):
    return Page(render_report(finished_run))


def test_scores_are_those_of_the_predictions(finished_run, page):
    with (finished_run.folder / "predictions.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    expected = []
    for _, of_test in groupby(sorted(rows, key=lambda r: r["test"]), lambda r: r["test"]):
        runs = []
        for _, of_run in groupby(sorted(of_test, key=lambda r: r["run"]), lambda r: r["run"]):
            pairs = [(int(row["label"]), float(row["probability"])) for row in of_run]
            labels, said = map(np.array, zip(*pairs, strict=True))
            runs.append(
                [
                    f1_score(labels, said > 0.5),
                    f1_score(labels, said > 0.5, average="weighted"),
                    roc_auc_score(labels, said),
                    average_precision_score(labels, said),
                ]
            )
        means, deviations = np.mean(runs, axis=0), np.std(runs, axis=0)
        expected += [f"{m:.2f} ({s:.2f})" for m, s in zip(means, deviations, strict=True)]
    assert page.row("mlp") == expected


def test_guesses_are_at_the_scored_folds_share(page):
    # 5 of 10 and 5 of 15 clips of the test fold are positive.
    assert page.row("all positive")[0] == "0.67"
    assert page.row("all positive")[4] == "0.50"
    assert page.row("random")[4] == "0.40"


def test_says_what_the_data_do_not_allow(page):
    assert "33% of the 15 test clips are positive" in page.text
    assert "No test clip was used for training" in page.text
    assert "50 clips of the store have no label that is used here" in page.text
    assert "tt0-018 and 45 more." in page.text
    assert "Of the 4 films in the test sets, 4 have other clips in training" in page.text
    assert "150 of the 150 clips with a label" in page.text
    assert "Read this first" not in page.text


def test_names_the_levels_in_words(page):
    assert "S (Sure)" in page.text
    assert "HN (Hard Negative)" in page.text


def test_is_one_file_and_runs_no_script(page):
    assert not {"script", "link", "img", "iframe"} & {tag for tag, _ in page.tags}
    assert not [attrs for _, attrs in page.tags if "src" in attrs or "href" in attrs]


def test_the_table_can_be_read_aloud(page):
    tags = [tag for tag, _ in page.tags]
    assert tags.count("caption") == tags.count("table")
    scopes = {attrs.get("scope") for tag, attrs in page.tags if tag == "th"}
    assert scopes == {"col", "colgroup", "row", "rowgroup"}
    assert ("html", {"lang": "en"}) in page.tags


def with_record(run, **changes):
    return replace(run, record=run.record | changes)


def test_what_comes_from_data_is_escaped(finished_run):
    attack = "<script>alert('gaze')</script>"
    record = finished_run.record
    html = render_report(
        with_record(
            finished_run,
            experiment=record["experiment"] | {"name": attack},
            split=attack,
            cautions=[attack],
            manifest=record["manifest"] | {"citation": attack},
            join=record["join"] | {"without_fold": [attack]},
        )
    )
    assert "<script" not in html
    assert html.count("&lt;script&gt;") == 6
    assert attack in Page(html).text


def test_cautions_stand_at_the_top(finished_run):
    page = Page(render_report(with_record(finished_run, cautions=["not a real result: random"])))
    assert page.text.index("not a real result") < page.text.index("mlp")
    assert any(attrs.get("class") == "alarm" for _, attrs in page.tags)


def test_leakage_is_said_loudly(finished_run):
    page = Page(render_report(with_record(finished_run, leaked=["tt0-001", "tt0-002"])))
    assert "2 test clips were used for training or for stopping" in page.text


def test_an_undefined_score_is_not_a_zero(finished_run):
    scores = [
        of | {"mean": of["mean"] | {"auroc": None}, "std": of["std"] | {"auroc": None}}
        for of in finished_run.record["scores"]
    ]
    page = Page(render_report(with_record(finished_run, scores=scores)))
    assert page.row("mlp")[2] == "–"


def test_says_when_guessing_does_as_well(finished_run):
    scores = [of | {"mean": of["mean"] | {"f1": 0.2}} for of in finished_run.record["scores"]]
    page = Page(render_report(with_record(finished_run, scores=scores)))
    assert re.search(
        r"F1 of 0\.20 \(95% interval over draws of 4 films: 0\.\d\d to 0\.\d\d\), "
        r"not above the best guess \(all positive: 0\.50\)",
        page.text,
    )


def test_the_command_writes_the_page(finished_run, tmp_path):
    arguments = ["report", str(finished_run.folder), "-o", str(tmp_path / "page.html")]
    first = CliRunner().invoke(cli.main, arguments)
    assert first.exit_code == 0
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == render_report(finished_run)
    again = CliRunner().invoke(cli.main, arguments)
    assert (again.exit_code, "--overwrite" in again.stderr) == (1, True)
    assert CliRunner().invoke(cli.main, [*arguments, "--overwrite"]).exit_code == 0


def test_a_folder_that_is_no_run(tmp_path):
    result = CliRunner().invoke(cli.main, ["report", str(tmp_path)])
    assert result.exit_code == 1
    assert "is not a run" in result.stderr
