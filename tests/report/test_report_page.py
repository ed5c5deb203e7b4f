import base64
import hashlib
import json
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from click.testing import CliRunner
from msgspec import to_builtins

import cli
from obygaze_features.common.files import sha256_of
from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import LabelSet, Manifest
from obygaze_models.experiments.experiment import Experiment
from obygaze_models.experiments.run import run_experiment
from obygaze_models.experiments.run_folder import read_results
from obygaze_models.explain.error_factors import Factor, FilmFactors
from obygaze_models.report.concepts import concept_figures
from obygaze_models.report.page import render_report, write_report
from obygaze_models.report.runs import default_run, prepare_runs
from obygaze_models.warnings import RunWarning
from tests.conftest import run_obygaze
from tests.report.conftest import BOTH, SURE, as_obygaze12, with_record
from tests.report.made import renamed
from tests.world import make_world, write_store

FILM = {"tt0": "tt0108160"}


class Page(HTMLParser):
    """The text outside of scripts, the tags, and the cells of all tables, row by row."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.text, self.rows, self.cell, self.script = [], "", [], False, False
        self.html = html
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.script = tag in ("script", "style")
        self.cell = tag in ("td", "th") or (self.cell and tag not in ("tr", "tbody"))
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        self.script = False
        if tag in ("td", "th"):
            self.cell = False

    def handle_data(self, data):
        if self.script:
            return
        self.text += data
        if self.cell:
            self.rows[-1][-1] += data

    def row(self, name):
        rows = ([" ".join(cell.split()) for cell in row] for row in self.rows)
        return next(row[1:] for row in rows if row and row[0] == name)


@pytest.fixture(scope="module")
def run(results):
    return results["first"]


@pytest.fixture(scope="module")
def page(run):
    return Page(render_report([run]))


def test_guesses_are_at_the_scored_folds_share(page):
    # 5 of 10 and 5 of 15 clips of the test fold are positive.
    assert page.row("mlp")[:3] == ["HN vs S → EN vs S", "10", "5"]
    assert page.row("mlp")[-1] == "0.67 all positive"
    assert [row[-1] for row in page.rows if row[0] == "mlp"] == [
        "0.67 all positive",
        "0.50 all positive",
    ]


def test_says_what_the_data_do_not_allow(page):
    assert "33% of the 15 test clips are positive" in page.text
    assert "No test clip was used for training" in page.text
    assert "50 clips of the store have no label that is used here" in page.text
    assert "Of the 4 films in the test sets, 4 have other clips in training" in page.text
    assert page.text.count("models.jsonl") == 0
    limits = page.text.partition("What may not be concluded:")[2].partition("What the words")[0]
    assert len([line for line in limits.splitlines() if line.strip()]) == 2
    sure = page.html.partition('id="sure"')[2]
    assert sure.partition("</ul>")[0].count("<li>") <= 6


def test_its_sections_come_in_order(page):
    names = [attrs["aria-labelledby"] for tag, attrs in page.tags
             if tag == "section" and "aria-labelledby" in attrs]  # fmt: skip
    assert names == ["found", "films", "explorer", "concepts", "sure", "methods"]


def test_names_the_levels_in_words(page):
    assert "S (Sure)" in page.text
    assert "HN (Hard Negative)" in page.text


def test_is_one_file_that_asks_for_nothing(run):
    html = render_report([run])
    page = Page(html)
    assert not {"link", "iframe", "img"} & {tag for tag, _ in page.tags}
    outside = [
        attrs
        for _, attrs in page.tags
        if "src" in attrs or not attrs.get("href", "#").startswith("#")
    ]
    assert outside == []
    policy = next(a["content"] for _, a in page.tags if a.get("http-equiv"))
    assert "default-src 'none'" in policy
    script = re.search(r"<script>(.*)</script>", html, re.S)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in policy


def test_tables_can_be_read_aloud(page):
    tags = [tag for tag, _ in page.tags]
    assert tags.count("caption") == tags.count("table")
    scopes = {attrs.get("scope") for tag, attrs in page.tags if tag == "th"}
    assert scopes == {"col", "colgroup", "row"}
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert ("html", {"lang": "en"}) in page.tags


def test_what_comes_from_data_is_escaped(run):
    attack = "<script>alert('gaze')</script>"
    record = run.run.record
    changed = with_record(
        run,
        experiment=record.experiment | {"name": attack},
        split=attack,
        warnings=[RunWarning("other", "", attack)],
        manifest=to_builtins(record.manifest) | {"citation": attack},
        join=to_builtins(record.join) | {"without_fold": [attack]},
    )
    html = render_report([changed], title=attack)
    assert html.count("<script") == 2  # the page's data and its own script
    assert attack not in html
    assert attack in Page(html).text


def test_cautions_stand_at_the_top(run):
    page = Page(
        render_report([with_record(run, warnings=[RunWarning("synthetic", "", "it is random")])])
    )
    assert page.text.index("Not a real result: it is random") < page.text.index("mlp")
    assert any(attrs.get("class") == "alarm" for _, attrs in page.tags)


def test_cautions_on_concepts_are_no_banner_and_grouped(run, tmp_path):
    """By model and reason, from what the run keeps of each fit."""
    warnings = [RunWarning("concepts", "pcbm-tree", f"Look is odd {place}.") for place in range(7)]
    folder = tmp_path / "run"
    shutil.copytree(run.run.folder, folder)
    models = [json.loads(line) for line in (folder / "models.jsonl").read_text().splitlines()]
    for one in models:
        if one["model"] == "pcbm-tree":
            one["facts"]["warnings"] = [
                {"code": "concepts-unreliable", "subject": name, "text": "is odd"}
                for name in (["Look", "Body"] if one["fit"] < 2 else ["Look"])
            ]
            one["facts"]["skipped"] = {"Posture": "too rare"} if one["fit"] == 0 else {}
    (folder / "models.jsonl").write_text("".join(json.dumps(one) + "\n" for one in models))
    files = run.run.record.files | {"models.jsonl": sha256_of(folder / "models.jsonl")}
    changed = replace(run, run=replace(run.run, folder=folder))
    page = Page(render_report([with_record(changed, warnings=warnings, files=files)]))
    top, _, rest = page.text.partition("Found")
    assert "odd" not in top
    assert "pcbm-tree: is odd. Of 9 fits: Look in 9, Body in 2." in rest
    assert "pcbm-tree: left out, too rare. Of 9 fits: Posture in 1." in rest
    assert rest.count("is odd") == 1


def test_says_what_it_is_about_and_what_the_words_mean(page, results):
    top = page.text.partition("Explorer: clip by clip")[0]
    assert "from Easy Negative to Sure" in " ".join(top.split())
    assert "how probable it finds S (Sure)" in top
    for word in ("PCBM", "AUROC", "AP", "native", "F1 weighted", "pcbm-tree", "fit"):
        assert f"\n{word}" in re.sub(r"\s*\n\s*", "\n", top), word
    own = {"c": "calm", "u": "uneasy"}
    manifest = to_builtins(results["classes"].run.record.manifest) | {"levels": own}
    other = Page(render_report([with_record(results["classes"], manifest=manifest)]))
    assert "Annotators gave each clip a level: calm, uneasy" in other.text
    assert "objectif" not in other.text.partition("Explorer: clip by clip")[0]


def test_the_papers_film_figures_stand_beside_its_model(results):
    run = as_obygaze12(renamed(results["films"], FILM))
    scores = [
        to_builtins(entry) | {"mean": entry.mean | {"f1": float(entry.model == "mlp")}}
        for entry in run.run.record.scores
    ]
    page = Page(render_report([with_record(run, scores=scores)]))
    heads = next(row for row in page.rows if row and row[0] == "Film")
    assert heads == ["Film", "Sure", "Clips", "Clips tested", "F1 positive", "Paper"]
    assert "Paper" not in next(
        row for row in Page(render_report([results["films"]])).rows if row and row[0] == "Film"
    )


def test_films_are_sorted_by_their_share_of_the_highest_level(results):
    levels = {one: "S" if one.startswith("tt2") else clip.level
              for one, clip in results["films"].clips.items()}  # fmt: skip
    clips = {one: replace(clip, level=levels[one]) for one, clip in results["films"].clips.items()}
    page = Page(render_report([replace(results["films"], clips=clips)]))
    titles = [attrs["href"] for tag, attrs in page.tags if "#film=" in attrs.get("href", "")]
    assert titles[0] == "#film=tt2"
    assert page.row("tt2")[0] == "100%"


def test_each_film_says_how_many_of_its_clips_were_tested(run):
    tested = {clip for fit in run.said for clip in fit.ids}
    page = Page(render_report([run]))
    for film in ("tt0", "tt3"):
        clips = [clip for clip in run.clips if clip.startswith(film)]
        assert page.row(film)[2] == f"{len(tested & set(clips))} of {len(clips)}"


def test_what_stands_above_the_title_names_a_task_once(run, results):
    names = [
        re.search('class="kicker">(.*?)</p>', render_report([one]))[1]
        for one in (with_record(run, goal="HN vs S, test on HN vs S"), run)
    ]
    assert names == ["HN vs S", "HN vs S, test on EN vs S, EN+HN vs S"]


def test_the_runs_of_a_page_are_folded_into_one_line(results):
    html = render_report(list(results.values()))
    methods = html.partition('id="methods"')[2]
    fold = re.search(r"<details>\s*<summary>What was run: 5 runs</summary>(.*)", methods, re.S)[1]
    assert [fold.count(f'<details class="run"><summary>{name}</summary>') for name in results] == (
        [1] * 5
    )
    assert methods.count("What was run") == 1


def test_a_caution_that_several_runs_share_is_one_line(results):
    page = Page(render_report([results["first"], results["second"], results["films"]]))
    sure = " ".join(page.text.rpartition("How certain")[2].split())
    assert sure.count("fits share one test fold. (first, second)") == 1
    assert sure.count("fits test different clips. (films)") == 1
    assert sure.count("fits share one test fold") == 1


def test_made_up_features_of_any_run_are_said_at_the_top(results):
    warnings = [RunWarning("synthetic", "", "it is random")]
    other = with_record(results["second"], warnings=warnings)
    page = Page(render_report([results["first"], other]))
    assert page.text.index("Not a real result: it is random") < page.text.index("Found")


def test_features_of_unknown_origin_are_said_at_the_top(results):
    warnings = [RunWarning("unknown-origin", "", "nobody knows")]
    page = Page(
        render_report([results["first"], with_record(results["second"], warnings=warnings)])
    )
    assert page.text.index("UNKNOWN ORIGIN: nobody knows") < page.text.index("Found")
    assert "what its frames show" not in page.text


@pytest.mark.parametrize("at_hand", [True, False])
def test_annotators_are_counted_over_the_label_set(marked, tmp_path, at_hand):
    """Also where the run's was drawn from it; or it says that it counts the run's clips."""
    manifest = Manifest.load(marked.manifest)
    every = manifest.labels()
    easy = [clip for clip, level in every.level_of.items() if level == "EN"]
    ids = [clip for clip in every.ids if clip not in easy[::2]]
    drawn = LabelSet(
        "drawn",
        ids,
        [every.level_of[clip] for clip in ids],
        [every.concepts_of[clip] for clip in ids],
    )
    manifest = Manifest(
        "toy", manifest.items, scheme=manifest.scheme, default_labels="all"
    ).with_parts(labels=[every, drawn], splits=[manifest.split("ten")])
    manifest.save(tmp_path / "manifest")
    experiment = Experiment(
        "drawn", manifest=tmp_path / "manifest", store=marked.store, labels="drawn",
        positives=("S",), train_negatives=("HN",), test_negatives=(("EN", "HN"),), split="ten",
        estimators=("logistic",),
    )  # fmt: skip
    run_experiment(experiment, tmp_path / "run")
    if not at_hand:
        shutil.rmtree(tmp_path / "manifest")
    page = Page(render_report([read_results(tmp_path / "run")]))
    text = " ".join(page.text.split())
    sure = [level for clip, level in every.level_of.items() if clip.startswith("tt0")].count("S")
    if at_hand:
        assert "sure of objectification in 50 of 200 clips of 4 films" in text
        assert "clips used here" not in text
    else:
        assert "sure of objectification in 50 of 175 clips used here of 4 films" in text
        assert "Of the clips used here" in text
    film = len([clip for clip in ids if clip.startswith("tt0")])
    assert page.row("tt0")[0] == f"{100 * sure / (50 if at_hand else film):.0f}%"


@pytest.mark.parametrize("address", [r"\\host\share", "//host/share", "https://host/m"])
def test_a_manifest_on_another_machine_is_not_opened(run, monkeypatch, address):
    """A run from somebody else must not choose whom this machine asks."""
    opened = []
    monkeypatch.setattr(Manifest, "load", lambda path: opened.append(path))
    experiment = run.run.record.experiment | {"manifest": address}
    assert not prepare_runs([with_record(run, experiment=experiment)])[0].counts_all
    assert opened == []


def test_the_data_are_cited_first_and_each_once(results):
    def cited(name, citation, **more):
        manifest = to_builtins(results[name].run.record.manifest) | {"citation": citation} | more
        return with_record(results[name], manifest=manifest)

    runs = [cited("first", "A 2020."), cited("second", "B 2021"), cited("films", "A 2020.")]
    said = " ".join(Page(render_report(runs)).text.partition("To cite:")[2].split())
    assert said.startswith("A 2020; B 2021; Tores et al., Visual Objectification in Films")
    assert said.partition("CVPR 2024; obygaze ")[2]
    other = cited("concepts", "C 2022", levels={"calm": "calm", "S": "Sure"})
    said = " ".join(Page(render_report([other])).text.partition("To cite:")[2].split())
    assert said.startswith("C 2022; obygaze ")
    assert "CVPR" not in said


def test_one_film_tested_is_said_before_anything_else(run, monkeypatch):
    only = [
        replace(
            fit,
            ids=[one for one in fit.ids if one.startswith("tt1")],
            labels=fit.labels[[one.startswith("tt1") for one in fit.ids]],
            probabilities=fit.probabilities[[one.startswith("tt1") for one in fit.ids]],
        )
        for fit in run.said
    ]
    page = Page(render_report([replace(run, said=only, explained=[])]))
    text = "This tests 1 of 4 films: tt1."
    assert page.text.index(text) < page.text.index("Found")
    # One film has no interval over films: no dot says what its interval includes.
    few = FilmFactors(None, 9, 3, (Factor("Look", 0.0, None, None, 4),))
    monkeypatch.setitem(concept_figures.__globals__, "factors_of_clips", lambda *_, **__: [few])
    page = Page(render_report([run]))
    assert "more often wrong, others held." in " ".join(page.text.split())
    assert "interval includes" not in page.html


def test_a_page_opens_on_a_run_that_does_not_leak(results):
    leaking = with_record(results["films"], leaked=["tt0-001"])
    runs = prepare_runs([leaking, results["first"]])
    assert len(runs[0].tested_clips) > len(runs[1].tested_clips)
    assert default_run(runs) is runs[1]
    page = Page(render_report([leaking, results["first"]]))
    assert "1 of 2 runs leak" in page.text
    assert "LEAKAGE" not in page.text.partition("Found")[0]


def test_leaks_are_said_loudly_and_counted(run):
    leak = {"task": "HN vs S", "test": "EN vs S", "clips": 10, "validation": 0, "otherwise": 1}
    leaks = [leak | {"fit": number, "train": 2 + number} for number in range(9)]
    text = "3 of the 10 test clips of EN vs S are in a training or validation set"
    warning = RunWarning("leak", "EN vs S", text)
    changed = with_record(run, leaks=leaks, leaked=["tt0-001"], warnings=[warning])
    page = Page(render_report([changed]))
    said = "LEAKAGE: up to 10 of the 10 test clips of EN vs S were used to train"
    assert " ".join(page.text.split()).index(said) < page.text.index("mlp")
    assert "tt0-001" not in page.text.partition("Found")[0]
    assert page.row("first") == ["EN vs S", "10", "2–10", "0", "1"]
    assert "No test clip was used" not in page.text


def test_an_undefined_score_is_not_a_zero(run):
    scores = [
        to_builtins(of)
        | {"mean": of.mean | {"f1": None}, "std": of.std | {"f1": None}, "interval": {}}
        for of in run.run.record.scores
    ]
    page = Page(render_report([with_record(run, scores=scores)]))
    cells = page.row("mlp")
    assert cells[3] == "–"
    assert not any(cell.startswith("0.00") for cell in cells)


def test_of_few_clips_no_interval_is_told(page):
    assert re.search(r"F1 positive \d\.\d\d; too few clips to say", page.text)
    assert "Few test clips: 15 of EN+HN vs S, 5 of them S" in " ".join(page.text.split())
    assert "over other such films" not in page.text


def test_says_when_guessing_does_as_well(results):
    run = results["films"]
    scores = [to_builtins(of) | {"mean": of.mean | {"f1": 0.2}} for of in run.run.record.scores]
    page = Page(render_report([with_record(run, scores=scores)]))
    interval = r"the average over other such films would probably be 0\.\d\d to 0\.\d\d"
    assert re.search(rf"F1 positive 0\.20; {interval}", page.text)
    assert re.search(r"not better than guessing, which reaches 0\.\d\d \(all positive\)", page.text)


def test_the_papers_figures_and_the_difference_have_columns(run):
    page = Page(render_report([as_obygaze12(run)]))
    assert page.row("mlp")[-2] == "0.71 F1 weighted"
    assert page.row("pcbm-tree")[-2] == "0.44 F1 positive"
    assert re.fullmatch(r"[+−]?0\.\d\d", page.row("mlp")[-1])
    assert "Paper" not in next(row for row in Page(render_report([run])).rows if "Model" in row)


def test_many_runs_share_a_table_a_kind(results):
    page = Page(render_report(list(results.values())))
    heads = [row for row in page.rows if row and row[0] == "Model"]
    assert len(heads) == 3  # levels, classes, concepts
    assert "Protocol" in heads[0]
    rows = {tuple(row[:3]) for row in page.rows if row and row[0] == "mlp"}
    assert ("mlp", "HN vs S → EN vs S", "one test fold") in rows
    assert ("mlp", "HN vs S → EN+HN vs S", "films left out") in rows
    assert "Report of 5 runs" in page.text


def test_runs_of_other_items_are_noted(results):
    one = results["first"].run.record.manifest
    other = with_record(
        results["second"], manifest=to_builtins(one) | {"digest": "f" * 64, "labels": "another set"}
    )
    page = Page(render_report([results["first"], other]))
    assert "The runs have different items: toy 1, " in page.text.replace("toy 1.0", "toy 1")
    assert "all (first); another set (second)" in page.text


def test_runs_of_one_name_are_told_apart(results):
    html = render_report([results["first"], results["first"]])
    assert "first (first) (1)" in html
    assert "first (first) (2)" in html


def test_a_store_that_lacks_half_the_clips(marked, tmp_path):
    world = make_world(tmp_path, marked=True)
    kept = Manifest.load(world.manifest).select(films=["tt0", "tt1"])
    write_store(tmp_path / "half.zarr", kept, dict(zip(world.ids, world.features, strict=True)))
    experiment = Experiment(
        "half",
        manifest=world.manifest,
        store=tmp_path / "half.zarr",
        estimators=("logistic",),
        train_negatives=("HN",),
        **SURE,
        **BOTH,
    )
    run_experiment(experiment, tmp_path / "run")
    page = Page(render_report([read_results(tmp_path / "run")]))
    assert "75 labelled clips have no features in the store." in page.text


def test_pictures_are_held_only_where_asked_and_said(run, tmp_path):
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    one = next(iter(run.clips))
    (pictures / f"{one}.jpg").write_bytes(b"\xff\xd8\xff and so on")
    html = render_report([run], thumbnails=pictures)
    assert base64.b64encode(b"\xff\xd8\xff and so on").decode() in html
    assert "Do not share this page" in html
    assert "pictures of 1 of 200 clips" in html
    assert "Do not share" not in render_report([run])


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda folder: None, "is not a folder"),
        (lambda folder: folder.mkdir(), "has no picture of any clip"),
        (lambda folder: (folder.mkdir(), (folder / "tt0-000.jpg").write_text("x")), "not a JPEG"),
    ],
)
def test_pictures_that_are_none(run, tmp_path, make, said):
    make(tmp_path / "pictures")
    with pytest.raises(ExperimentError, match=said):
        render_report([run], thumbnails=tmp_path / "pictures")


def test_the_command_writes_the_page(run, tmp_path):
    arguments = ["report", str(run.run.folder), "-o", str(tmp_path / "page.html")]
    first = CliRunner().invoke(cli.main, arguments)
    assert first.exit_code == 0
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == render_report([run])
    again = CliRunner().invoke(cli.main, arguments)
    assert (again.exit_code, "--overwrite" in again.stderr) == (1, True)
    assert CliRunner().invoke(cli.main, [*arguments, "--overwrite"]).exit_code == 0


def test_the_command_takes_several_runs(results, tmp_path):
    folders = [str(one.run.folder) for one in results.values()]
    nameless = CliRunner().invoke(cli.main, ["report", *folders])
    assert (nameless.exit_code, "add -o" in nameless.stderr) == (2, True)
    twice = CliRunner().invoke(cli.main, ["report", *folders[:1], folders[0] + "/run.json"])
    assert (twice.exit_code, "a run is named twice" in twice.stderr) == (2, True)
    pictures = CliRunner().invoke(cli.main, ["report", *folders[:1], "--thumbnails", str(tmp_path)])
    assert (pictures.exit_code, "with -o" in pictures.stderr) == (2, True)
    arguments = ["report", *folders, "-o", str(tmp_path / "page.html"), "--title", "All of them"]
    assert CliRunner().invoke(cli.main, arguments).exit_code == 0
    assert "<h1>All of them</h1>" in (tmp_path / "page.html").read_text(encoding="utf-8")


def test_a_page_of_nothing(tmp_path):
    with pytest.raises(ExperimentError, match="one run or more"):
        write_report([], tmp_path / "page.html")


def spoil(run, tmp_path, name, text=None):
    folder = tmp_path / "run"
    shutil.copytree(run.run.folder, folder)
    if text is None:
        (folder / name).unlink()
    else:
        path = folder / name
        path.write_text(text(path.read_text(encoding="utf-8")), encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("run.json", None, "is not a run"),
        ("predictions.csv", None, "has no predictions.csv"),
        ("clips.csv", None, "has no clips.csv"),
        ("explanations.jsonl", lambda text: text[: len(text) // 2], "explanations.jsonl"),
        (
            "run.json",
            lambda text: text.replace('"format_version": 4', '"format_version": 99'),
            "99",
        ),
        (
            "predictions.csv",
            lambda text: text.replace(",mlp,", ",mlq,"),
            "predictions.csv was changed",
        ),
    ],
)
def test_a_folder_that_is_no_whole_run_is_one_line(run, tmp_path, name, text, said):
    folder = spoil(run, tmp_path, name, text)
    result = CliRunner().invoke(cli.main, ["report", str(folder), "-o", str(tmp_path / "x.html")])
    assert result.exit_code == 1
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "x.html").exists()


def test_does_not_change_from_one_time_to_the_next(results):
    runs = list(results.values())
    assert render_report(runs) == render_report(runs)


@pytest.fixture(scope="module")
def analyses(results, marked, tmp_path_factory):
    """JSON of tests of a bottleneck's concepts, by kind."""
    folder = tmp_path_factory.mktemp("analyses")
    model = next((results["first"].run.folder / "models/pcbm-tree").iterdir())
    paths = {}
    for kind in ("significance", "intervene"):
        arguments = ("--manifest", marked.manifest, f"--{kind}", "--draws", 5, "--json")
        paths[kind] = folder / f"{kind}.json"
        text = run_obygaze("models", "explain", model, marked.store, *arguments).stdout
        paths[kind].write_text(text, encoding="utf-8")
    return paths


def test_analyses_of_models_are_tables_of_the_page(results, analyses):
    page = Page(render_report([results["first"]], analyses=analyses.values()))
    ranks = json.loads(analyses["significance"].read_text(encoding="utf-8"))["significance"]
    curves = json.loads(analyses["intervene"].read_text(encoding="utf-8"))["intervene"]
    cells = [
        f"{ranks[0][key]:.3f}" for key in ("auc", "random_auc", "random_auc_95", "p", "p_holm")
    ]
    assert [ranks[0]["name"], *cells] in page.rows
    assert f"{len(curves['concepts'])} concepts corrected" in page.text


@pytest.mark.parametrize(
    "change",
    [
        lambda _: {},
        lambda _: [],
        lambda made: made | {"significance": [{"name": "Look"}]},
        lambda made: made | {"significance": []},
        lambda made: made | {"other": 1},
    ],
)
def test_what_is_no_analysis_is_refused(results, analyses, tmp_path, change):
    path = tmp_path / "analysis.json"
    made = json.loads(analyses["significance"].read_text(encoding="utf-8"))
    path.write_text(json.dumps(change(made)), encoding="utf-8")
    with pytest.raises(ExperimentError, match=f"{path.name} is not an analysis"):
        render_report([results["first"]], analyses=[path])
