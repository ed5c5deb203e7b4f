"""The page: its warnings, its sections, several runs on one page, and the command."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs, to_builtins

import obygaze_models as om
from obygaze_features.common.files import sha256_of
from obygaze_features.common.tables import format_table
from obygaze_features.errors import ExperimentError, UsageError
from obygaze_features.manifests import Manifest
from obygaze_models.data.warnings import RunWarning
from obygaze_models.experiments.experiment import Experiment
from obygaze_models.report.concepts import concept_figures
from obygaze_models.report.findings import findings
from obygaze_models.report.glossary import about, citation, eyebrow
from obygaze_models.report.headline import headline
from obygaze_models.report.limits import alarms, cautions, concept_notes, limits
from obygaze_models.report.page import report as write_report
from obygaze_models.report.runs import default_run, prepare_runs, score_tables
from obygaze_models.report.score_figure import score_figure
from tests.conftest import run_obygaze
from tests.kit.files import csv_rows, refused, write
from tests.kit.predicted import fits_of
from tests.kit.run import FILMS
from tests.report.conftest import (
    FOUR,
    Page,
    explorer_of,
    plain,
    render_report,
    with_manifest,
    with_record,
    with_score,
    with_tables,
)


@pytest.fixture(scope="module")
def run(results):
    return results["first"]


@pytest.fixture(scope="module")
def page(run):
    return Page(render_report([run]))


def show(part, *runs):
    """Return the plain lines of a part of the first screen."""
    prepared = prepare_runs(runs)
    head = headline(score_tables(prepared), default_run(prepared), None)
    if part is cautions:
        return [plain(f"{c.text} ({c.runs}) {c.follows}") for c in cautions(prepared, head.run)]
    return list(map(plain, part(head, prepared) if part is alarms else part(head)))


def test_many_runs_share_an_accessible_page(whole_html, results):
    page_of_all = Page(whole_html)
    assert not {"link", "iframe", "img"} & {tag for tag, _ in page_of_all.tags}
    sections = [a.get("aria-labelledby") for tag, a in page_of_all.tags if tag == "section"]
    names = ["found", "films", "explorer", "agreement", "concepts", "sure", "methods"]
    assert [name for name in sections if name] == names
    tags = [tag for tag, _ in page_of_all.tags]
    assert tags.count("caption") == tags.count("table")
    scopes = {attrs.get("scope") for tag, attrs in page_of_all.tags if tag == "th"}
    assert scopes == {"col", "colgroup", "row"}
    heads = [row for row in page_of_all.rows if row and row[0] == "Model"]
    assert len(heads) == 3  # levels, classes, concepts
    rows = {tuple(row[:3]) for row in page_of_all.rows if row and row[0] == "mlp"}
    assert ("mlp", "HN vs S → EN vs S", "one test fold") in rows
    assert ("mlp", "HN vs S → EN+HN vs S", "films left out") in rows
    methods = whole_html.partition('id="methods"')[2].partition("What was run: 5 runs")[2]
    for name in results:
        assert methods.count(f'<details class="run"><summary>{name}</summary>') == 1
    changed = with_manifest(results["second"], digest="f" * 64, labels="another set")
    lines = " ".join(show(cautions, results["first"], changed))
    for words in ("The runs have different items: toy 1", "all (first); another set (second)"):
        assert words in lines.replace("toy 1.0", "toy 1")


def test_titles_replace_model_names(marked, tmp_path):
    titles = {"logistic": "a line", "mlp": "a network"}
    experiment = Experiment("titled", manifest=marked.manifest, store=marked.store, titles=titles,
                            estimators=("logistic", "mlp"), **FOUR, positives=("S",),
                            train_negatives=("HN",))  # fmt: skip
    run = om.run_experiment(experiment, tmp_path / "run")
    page = Page(render_report([run]))
    before_glossary = page.text.partition("What the words mean")
    assert {"a line", "a network"} <= {row[0] for row in page.rows if row}
    assert {view["model"] for view in explorer_of(page.html)["views"]} == {*titles.values()}
    for text in (before_glossary[0], *map(" ".join, page.rows)):
        assert not re.search(r"\b(logistic|mlp)\b", text), text
    result = run_obygaze("models", "predict", run.folder, "-o", tmp_path / "p.csv")
    assert result.exit_code == 0, result.output
    assert {row["model"] for row in csv_rows(tmp_path / "p.csv")} == {*titles.values()}


def test_a_runs_only_model_is_named_after_its_input(results):
    page = Page(render_report([results["concepts"]]))
    assert "When logistic is wrong" not in page.html
    parts = page.text.partition("Film explorer")[0].partition("What the words mean")
    assert "logistic" not in parts[0]


def test_a_runs_page_states_task_data_and_result(page, run):
    for words in (
        "HN (Hard Negative)", "from Easy Negative to Sure", "50% of the 24 test clips are positive",
        "No test clip was used for training",
        "50 clips of the store have no label for this task",
        f"{FILMS} of the {FILMS} tested films have other clips in training",
        "3 fits share one test fold",
    ):  # fmt: skip
        assert words in page.text, words
    tested = {clip for fit in fits_of(run) for clip in fit.ids}
    for film in ("tt0", "tt3"):
        clips = {clip for clip in run.clips["id"] if clip.startswith(film)}
        assert page.row(film)[2] == f"{len(tested & clips)} of {len(clips)}"
    scores = {(e.model, e.test): e for e in run.model_scores}["mlp", "EN vs S"]
    heads = next(row for row in page.rows if row and row[0] == "Model")
    assert "Paper" not in heads
    cells = dict(zip(heads, ["mlp", *page.row("mlp")], strict=True))
    assert cells["Levels compared"] == "HN vs S → EN vs S"
    assert (cells["Clips"], cells["Positive"]) == ("24", "12")
    assert cells["F1 positive"].startswith(f"{scores.mean['f1']:.2f}")
    guess = run.tests["EN vs S"].guesses["all positive"]["f1"]
    assert cells["F1 of a guess"] == f"{guess:.2f} all positive"


def test_a_page_opens_on_the_run_with_most_test_clips(results):
    films, first, concepts = (results[name] for name in ("films", "first", "concepts"))
    assert default_run(prepare_runs([concepts, first, films])).name == "films"
    leaking = leaky(films)
    assert default_run(prepare_runs([leaking, first])).name == "first"
    assert "(films) Do not compare" in show(cautions, leaking, first)[0]


def leaky(run):
    leak = {"task": "HN vs S", "test": "EN vs S", "clips": 10, "validation": 0, "otherwise": 1}
    leaks = [leak | {"fit": number, "train": 2 + number} for number in range(3)]
    return with_record(run, leaks=leaks, leaked=1)


def test_alarms_name_what_changes_the_conclusion(run, results):
    second = results["second"]
    for code, alarm in (("synthetic", "Not a real result: why"), ("unknown-origin", "UNKNOWN")):
        warned = with_record(second, warnings=[RunWarning(code, "", "why")])
        assert any(alarm in line for line in show(alarms, run, warned))
    assert "what its frames show" not in plain(about(prepare_runs([run, warned])))
    leaking = leaky(run)
    assert not any("No test clip was used" in line for line in show(cautions, leaking))
    sizes = {
        "EN+HN vs S": {"negative": 10, "positive": 5},
        "EN vs S": {"negative": 5, "positive": 5},
    }
    tests = to_builtins(run.tests)
    for name, classes in sizes.items():
        tests[name] |= {"clips": sum(classes.values()), "classes": classes, "positives": 5}
    small = with_record(run, tests=tests)
    assert (
        "15 clips for Easy Negative or Hard Negative vs Sure, 5 of them Sure"
        in show(alarms, small)[0]
    )
    assert "too few clips for an interval" in show(findings, small)[2]
    # They come first, and the paper's numbers are next to ours.
    warned = with_record(leaky(run), warnings=[RunWarning("synthetic", "", "it is random")])
    page = Page(render_report([with_manifest(warned, name="obygaze12")]))
    top = page.text.partition("Findings")[0]
    assert "Not a real result: it is random" in top
    assert "LEAKAGE: up to 5 of the 10 test clips of EN vs S were used to train" in top
    assert page.row("first") == ["EN vs S", "10", "2–4", "0", "1"]
    assert page.row("mlp")[-2] == "0.71 F1 weighted"


def test_one_film_tested_gives_no_interval(run):
    own = run.predictions[run.predictions["id"].str.startswith("tt1-")]
    single = with_tables(with_record(run, also_trained=0), predictions=own)
    assert any(f"This tests 1 of {FILMS} films: tt1" in line for line in show(alarms, single))
    assert any("films other than tt1" in line for line in show(limits, single))
    clips = run.clips.assign(group="tt1")
    prepared = prepare_runs([with_tables(run, clips=clips)])
    figures = concept_figures(headline(score_tables(prepared), default_run(prepared), None))
    assert "the same in all other rows. At 1" in plain(figures[-1][1])
    assert "interval includes" not in figures[-1][0]


def test_unrequested_concepts_are_not_blamed_on_methods(results):
    def detected(*names):
        prepared = prepare_runs([results[name] for name in names])
        head = headline(score_tables(prepared), default_run(prepared), None)
        captions = [plain(caption) for _, caption in concept_figures(head, prepared)]
        [caption] = [text for text in captions if text.startswith("How often each model")]
        return caption

    assert "“Methods”" not in detected("concepts")
    assert detected("concepts").endswith("No model of this page was trained to detect Posture.")
    assert "trained to detect" not in detected("first")
    learned, measured = (
        "single-concept models, dots are means over films",
        "dots are means over fits ",
    )
    assert learned in detected("concepts")
    assert measured not in detected("concepts")
    assert measured in detected("first")
    assert learned not in detected("first")
    assert learned in detected("films", "concepts")
    assert measured in detected("films", "concepts")


def with_f1(run, f1, *, metric="f1", **more):
    scores = [
        to_builtins(score)
        | {"mean": score.mean | {metric: f1}}
        | {"groups": {film: own | {metric: f1} for film, own in score.groups.items()}}
        | more
        for score in run.model_scores
    ]
    return with_record(run, scores=scores)


def test_a_score_at_chance_is_called_so(results):
    films = results["films"]
    low, better = (show(findings, run) for run in (with_f1(films, 0.2), films))
    assert "it rates the Sure one higher 9" in low[0]
    start = "A model that never saw the film ranks clips better than chance. "
    assert low[0].startswith(start)
    assert better[0].startswith(start)
    assert "(AUROC 0.9" in low[0]
    guess = "calling every clip Sure"
    assert f"Its verdicts are not better than guessing (F1 positive 0.20; {guess} 0." in low[0]
    assert "Its verdicts are better than guessing (F1 positive 0." in better[0]
    by_film = {film: own | {"f1": 0.99} for film, own in films.model_scores[0].groups.items()}
    worst = next(iter(by_film))
    by_film[worst] |= {"f1": 0.0}  # one film of five
    unclear = show(findings, with_f1(films, 0.79, groups=by_film))
    assert f"may be no better than guessing (F1 positive 0.79; {guess} 0." in unclear[0]
    classes = show(findings, results["classes"])
    sentences = " ".join(classes)
    assert re.search(r"clips correctly.*, on average over films .*labels give", sentences)
    assert "<p><strong>A model that never saw the film ranks" in render_report([films])
    by_media = structs.replace(results["films"].experiment, groups="media")
    by_file = show(findings, with_record(results["films"], experiment=by_media))
    assert by_file[0].startswith("A model that never saw the file ranks")
    assert "clip of the same file" in by_file[0]
    own = structs.replace(by_media, gap=5.0)
    text = Page(render_report([with_record(results["films"], experiment=own)])).text
    assert "within 5.0 s of a test clip" in text
    assert "each file is tested" in text
    assert "by the jackknife over files" in text
    assert not re.search("by film|draws of films|other such films|a film that", text)
    unnamed = with_record(results["films"], films={"tested": 0, "also_trained": 0})
    verdict, _, *others = show(findings, unnamed)
    assert verdict.startswith("A model that never saw the clip")
    sentences = [verdict, *others, *show(limits, unnamed)]
    assert "film" not in " ".join(sentences)
    run = results["first"]
    undefined = with_f1(run, None, interval={})
    page = Page(render_report([undefined]))
    heads = next(row for row in page.rows if row and row[0] == "Model")
    assert page.row("mlp")[heads.index("F1 positive") - 1] == "–"


@pytest.mark.parametrize(
    ("score", "title", "better", "guess", "worse"),
    [
        ("f1", "F1 positive", "verdicts of a model that never saw the film are better than",
         "calling every clip Sure", "verdicts are better than guessing"),
        ("average_precision", "AP", "model that never saw the film ranks clips better than",
         "guessing", "model ranks clips better than guessing"),
    ],
)  # fmt: skip
def test_the_first_sentence_states_the_runs_score(results, score, title, better, guess, worse):
    films = with_score(results["films"], score)
    first, _, model, *_ = show(findings, films)
    numbers = rf"0.\d\d, 0.\d\d to [01].\d\d; {guess} 0.\d\d"
    assert re.search(rf" {better} guessing \({title} {numbers}\)\.$", first)
    assert "AUROC" not in first
    assert "(AUROC 0." in model
    lower = with_f1(films, 0.1, metric=score)
    assert re.search("(are not|does not rank clips) better than g", show(findings, lower)[0])
    assert any(worse in line for line in show(limits, lower))
    assert not any(worse in line for line in show(limits, films))
    concepts = show(findings, with_score(results["concepts"], score))
    assert re.search(rf"better than guessing for \d of 2 concepts \({title} averaged", concepts[0])
    imbalanced = with_record(films, tests=with_classes(films, 95, 5))
    assert "on too few clips to say more" in show(findings, imbalanced)[0]
    low = show(findings, with_record(lower, tests=with_classes(films, 95, 5)))[0]
    assert re.search(r"scores? no higher than guessing \(.*on too few clips to say more", low)


def test_each_part_of_the_chart_names_its_average(results):
    def chart(run=results["films"]):
        prepared = prepare_runs([run])
        head = headline(score_tables(prepared), default_run(prepared), None)
        return plain(score_figure(head))

    assert "Mean over films" in chart()
    by_media = structs.replace(results["films"].experiment, groups="media")
    assert "Mean over files" in chart(with_record(results["films"], experiment=by_media))
    scores = [*results["films"].model_scores]
    scores[1] = replace(scores[1], pooled=True, groups={})
    mixed = chart(with_tables(results["films"], model_scores=scores))
    assert "Mean over films" in mixed
    assert "All test clips together" in mixed


def with_classes(run, negatives, positives):
    """Return the run's test sets with these numbers of clips of the two classes."""
    return {
        name: test
        | {"clips": negatives + positives, "positives": positives}
        | {"classes": dict(zip(test["classes"], (negatives, positives), strict=True))}
        for name, test in to_builtins(run.tests).items()
    }


def test_the_table_names_uncounted_films_and_missing_intervals(results):
    def caption(run):
        return score_tables(prepare_runs([run]))[0].caption

    films = results["films"]
    assert caption(films).startswith(f"Means over {FILMS} films; 95% intervals in brackets. Levels")
    left_out = [f"tt{number}" for number in range(11, 18)]
    titles = {"tt11": "The Left Out"} | {name: name for name in left_out[1:]}
    scores = [*films.model_scores]
    groups = dict([*scores[0].groups.items()][:3])
    scores[0] = replace(scores[0], groups=groups, left_out=left_out)
    fewer = with_tables(films, model_scores=scores, titles=films.titles | titles)
    text = caption(fewer)
    assert text.startswith(f"Means over 3 to {FILMS} films")
    names = "The Left Out, tt12, tt13, tt14, tt15 and 2 more"
    assert f"Left out, because classes are missing: {names}." in text
    rare = caption(with_record(films, tests=with_classes(films, 950, 50)))
    assert "No interval for AP if less than 10% of the clips are positive, because a few" in rare
    ranked = show(
        findings,
        with_record(with_score(films, "average_precision"), tests=with_classes(films, 950, 50)),
    )
    assert "on too few positives to say more" in ranked[0]


def test_cautions_on_concepts_are_grouped_by_reason(run, tmp_path):
    warnings = [RunWarning("concepts", "pcbm-tree", f"Look is odd {n}.") for n in range(7)]
    folder = tmp_path / "run"
    shutil.copytree(run.folder, folder)
    fits = csv_rows(folder / "fits.csv")
    for fit in fits:
        if fit["model"] == "pcbm-tree":
            facts, first = json.loads(fit["facts"]), fit["fit"] == "0"
            facts["warnings"] = [
                {"code": "concepts-unreliable", "subject": name, "text": "is odd"}
                for name in (["Look", "Body"] if int(fit["fit"]) < 2 else ["Look"])
            ]
            facts["skipped"] = dict.fromkeys(("Posture", "Voice"), "too rare") if first else {}
            fit["facts"] = json.dumps(facts)
    columns = {name: [fit[name] for fit in fits] for name in fits[0]}
    (folder / "fits.csv").write_text(format_table(columns))
    files = run.header.files | {"fits.csv": sha256_of(folder / "fits.csv")}
    changed = with_manifest(
        with_record(run, warnings=warnings, files=files), senses={"Voice": "heard"}
    )
    changed = replace(changed, folder=folder)
    notes = [plain(note.text) for note in concept_notes(prepare_runs([changed]))]
    odd = "Look in 3, Body in 2. Reason: is odd."
    rare = "Posture in 1, Voice in 1. Reason: too rare."
    [odd] = [note for note in notes if note.endswith(odd)]
    [rare] = [note for note in notes if note.endswith(rare)]
    assert ["3 fits of pcbm-tree" in note for note in (odd, rare)] == [True, True]
    assert any("Voice in 2. Reason: they cannot be seen" in note for note in notes)
    assert ["unreliable" in note for note in (odd, rare)] == [True, False]
    assert not any("odd" in line for line in show(alarms, changed) + show(cautions, changed))


def test_annotators_are_counted_over_the_label_set(results):
    run = results["films"]
    used = run.clips[run.clips["used"] == ""]
    run = with_tables(run, clips=used)
    assert show(findings, run)[1] == f"50 of 200 clips of {FILMS} films are Sure."
    lost = with_record(run, experiment=structs.replace(run.experiment, manifest="gone"))
    assert f"50 of 150 clips used here of {FILMS} films" in show(findings, lost)[1]


def test_the_data_are_cited_first_and_once(page, results):
    def cited(name, source, **more):
        return with_manifest(results[name], citation=source, **more)

    runs = [cited("first", "A 2020."), cited("second", "B 2021"), cited("films", "A 2020.")]
    assert citation(prepare_runs(runs)).startswith("A 2020; B 2021; Tores et al., Visual")
    foreign = cited("concepts", "C 2022", levels={"calm": "calm", "S": "Sure"})
    assert citation(prepare_runs([foreign])).startswith("C 2022; obygaze ")
    assert "To cite: toy, whose manifest has no citation; Tores et al." in page.text


def test_custom_levels_have_their_own_titles(run, results):
    own = with_manifest(results["classes"], levels={"c": "calm", "u": "uneasy"})
    words = plain(about(prepare_runs([own])))
    assert "Each clip has a level: calm, uneasy" in words
    assert "objectif" not in words
    own = with_manifest(run, levels=run.header.manifest.levels | {"S": "uneasy", "X": "calm"})
    assert any("the model recognises “uneasy”" in line for line in show(limits, own))
    same = with_record(run, tests={"HN vs S": run.tests["EN vs S"]})
    names = [eyebrow([replace(prepare_runs([run])[0], run=variant)]) for variant in (same, run)]
    words = "Hard Negative vs Sure"
    more = f"{words}, test on Easy Negative vs Sure, Easy Negative or {words}"
    assert names == [words, more]


def test_every_text_of_a_run_is_escaped(hostile_run):
    run, texts = hostile_run
    html = render_report([run], title=texts["title"])
    assert html.count("<script") == 2  # the page's data and its own script
    data = json.dumps(explorer_of(html))
    for text in texts.values():
        assert text not in html
        assert text in Page(html).text or json.dumps(text)[1:-1] in data, text


SLIPS = [
    ({"sources": []}, "one or more runs"),
    ({"thumbnails": "none"}, "none is not a folder"),
    ({"thumbnails": "texts"}, "tt0-000.jpg is not a JPEG"),
    ({"moments": "x.csv"}, "--frames frames.csv"),
]


@pytest.mark.parametrize(("options", "fact"), SLIPS)
def test_user_errors_are_refused_by_name(run, tmp_path, monkeypatch, options, fact):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "texts/tt0-000.jpg", "x")
    with pytest.raises((ExperimentError, UsageError), match=re.escape(fact)):
        write_report(**{"sources": [run], "output": "page.html", **options})
    assert not Path("page.html").exists()


def test_the_command_overwrites_no_page(run, tmp_path):
    arguments = ["report", run.folder, "-o", tmp_path / "page.html"]
    assert run_obygaze(*arguments).exit_code == 0
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == render_report([run])
    refused(run_obygaze(*arguments), "--overwrite")
    refused(run_obygaze("report", run.folder, run.folder.parent / "second"), "Add -o", code=2)
    refused(run_obygaze("report", run.folder, "--thumbnails", "x"), "-o", code=2)


@pytest.mark.parametrize("address", [r"\\host\share", "//host/share", "https://host/m"])
def test_a_manifest_on_another_machine_is_not_opened(run, monkeypatch, address):
    """A foreign run must not choose which server this machine contacts."""
    opened = []
    monkeypatch.setattr(Manifest, "load", lambda path: opened.append(path))
    experiment = structs.replace(run.experiment, manifest=address)
    assert not prepare_runs([with_record(run, experiment=experiment)])[0].counts_all
    assert opened == []
