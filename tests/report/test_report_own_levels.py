"""A world that is not the paper's, from runs to pages, tables, ELAN and moments. What is said of it
is counted here from the world itself."""

import json
import re

import pytest
from pympi.Elan import Eaf

import obygaze_models as om
from obygaze_features.annotations.agreement import sure_task
from obygaze_features.annotations.measures import distances_of
from obygaze_features.manifests import LabelScheme, Level, Manifest, obygaze_scheme
from obygaze_features.manifests.labels import parse_concepts
from tests.conftest import run_obygaze
from tests.kit.files import csv_rows
from tests.kit.predicted import fits_of
from tests.kit.run import LEVELS as PAPER
from tests.kit.world2 import ANNOTATORS, CONCEPTS, FILMS, LEVELS, SCENES, SECONDS, make_world2
from tests.report.conftest import Page, explorer_of

BANK = {"name": "pcbm-logistic", "negatives": "b", "bank__C": 0.1}
TASK = {"positives": ("A+",), "train_negatives": ("A",)}
WIDE = "A+very-high vs A+"
EXPERIMENTS = {
    "levels": TASK | {
        "test_negatives": (("A",), ("A", "very-high")),
        "estimators": ("logistic", BANK, {"name": "frame-mil", "max_iter": 2}),
    },
    "concepts": {"concepts": ("smoke, fire", "red vs blue"), "negatives": "b"},
    "classes": {"levels": ("very-high", "A", "A+")},
}  # fmt: skip


def run_on(world, folder, **options):
    options = {"estimators": ("logistic",), "split": "three", "labels": ANNOTATORS} | options
    experiment = om.Experiment("own", manifest=world.manifest, store=world.store, **options)
    return om.run_experiment(experiment, folder)


def page_of_run(run, folder):
    return Page(om.report(run, folder / "page.html", overwrite=True).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def world2(tmp_path_factory):
    return make_world2(tmp_path_factory.mktemp("world2"))


@pytest.fixture(scope="module")
def labels(world2):
    return Manifest.load(world2.manifest).labels()


@pytest.fixture(scope="module")
def counts(labels):
    return {code: labels.levels.count(code) for code in LEVELS}


@pytest.fixture(scope="module")
def runs(world2, tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs2")
    return {name: run_on(world2, folder / name, **keys) for name, keys in EXPERIMENTS.items()}


@pytest.fixture(scope="module")
def pages(runs, tmp_path_factory):
    return {name: page_of_run(run, tmp_path_factory.mktemp(name)) for name, run in runs.items()}


def test_the_first_screen_names_and_counts_the_test(pages, labels, counts):
    tested = counts["A+"] + counts["A"] + counts["very-high"]
    marked = {c.name: sum(c.name in names for names in labels.concepts) for c in CONCEPTS}
    for name, sentences in {
        "levels": (
            "Quiet vs Loud vs quiet, test on Quiet vs Loud vs quiet, "
            "Quiet or Wide open vs Loud vs quiet",
            f"Tested on {tested} clips that are Quiet or Wide open or Loud vs quiet "
            f"({len(labels) - tested} others are left out)",
            f"of the {counts['A+']} that are Loud vs quiet",
            f"{counts['A+']} of {len(labels)} clips of {len(FILMS)} films are Loud vs quiet",
            "how the model does on clips that are Hard to say, at times.",
            "Quiet or Wide open vs Loud vs quiet: models compared with each annotator",
        ),
        "concepts": (
            f"have smoke, fire in {marked['smoke, fire']}, red vs blue in "
            f"{marked['red vs blue']} of {len(labels)} clips",
        ),
        "classes": (
            f"give Wide open to {counts['very-high']}, Quiet to {counts['A']}, Loud vs quiet to "
            f"{counts['A+']} of {len(labels)} clips",
        ),
    }.items():
        for sentence in sentences:
            assert sentence in pages[name].text, sentence
    assert pages["levels"].text.count("how the model does on") == 1


def test_no_page_mentions_the_papers_levels(pages):
    for page in pages.values():
        assert not re.search("objectif|Hard Negative|Not Sure|Tores", page.text)
        terms = re.findall(r"<dt[^>]*>(.*?)</dt>\s*<dd>(.*?)</dd>", page.html)
        assert set(terms) >= {*LEVELS.items(), ("A", "seen")}  # a level, and a concept


def test_levels_concepts_and_films_are_listed_unabridged(pages):
    page, names = pages["levels"], [concept.name for concept in CONCEPTS]
    by_film = [row for row in page.rows if row and row[0] == "Film" and "rain: heavy" in row]
    assert [sorted(row[1:]) for row in by_film] == [sorted(names)] * 2  # shares, then kappas
    assert {row[0] for row in page.rows if row} >= {*FILMS, "smoke, fire", "red vs blue"}
    [data] = explorer_of(page.html)["clips"]
    assert {film["id"] for film in data["films"]} == {*FILMS}
    assert [(level["code"], level["name"]) for level in data["levels"]] == [*LEVELS.items()]
    assert data["concepts"] == sorted(names)
    assert not any(data["meanings"])
    levels = {
        name: [
            [side["levels"] for side in view["classes"]] for view in explorer_of(page.html)["views"]
        ]
        for name, page in pages.items()
    }
    assert levels == {
        "levels": [[["A", "very-high"], ["A+"]]] * 3,
        "concepts": [[[], []]] * 2,
        "classes": [[["very-high"], ["A"], ["A+"]]],
    }


def test_the_explorer_counts_annotators_of_the_level_shown(tab, pages, page_of, world2):
    tab.prefer()
    tab.open(page_of(pages["levels"].html, "own.html"))
    assert {*tab.texts(".class-shown")} == {"A+ (Loud vs quiet)"}
    for field, value in (("film", ""), ("which", "single")):
        tab.choose(f"choose-{field}", value)
    manifest = Manifest.load(world2.manifest)
    rows = zip(*(manifest.labels(name).levels for name in ANNOTATORS), strict=True)
    alone = sum(levels.count("A+") == 1 for levels in rows)
    tab.run("document.getElementById('show-all').click()")
    assert len(tab.texts("#clips-body .open")) == alone > 0


@pytest.fixture(scope="module")
def exported(runs, tmp_path_factory):
    folder = tmp_path_factory.mktemp("exported2")
    run_obygaze(
        "models", "predict", runs["levels"].folder, "-o", folder / "all.csv",
        "--elan", folder, code=0,
    )  # fmt: skip
    return folder


def tier_texts(folder, tier):
    """Return each text of a tier in all files, and its count."""
    values = [
        note[2]
        for path in folder.glob("*.eaf")
        for note in Eaf(str(path)).get_annotation_data_for_tier(tier)
    ]
    return {value: values.count(value) for value in values}


def test_tables_and_elan_files_have_full_names(exported, labels, counts):
    rows = csv_rows(exported / "all.csv")
    for row in rows:
        assert set(parse_concepts(row["concepts"])) == set(labels.concepts_of[row["clip"]])
    assert {row["film"].strip("'") for row in rows} == {*FILMS}
    assert {path.stem for path in exported.glob("*.eaf")} == {*FILMS}
    own = [row["prediction"] for row in rows if (row["model"], row["test"]) == ("logistic", WIDE)]
    notes = tier_texts(exported, f"logistic: {WIDE}")
    assert notes.pop("Loud vs quiet") == own.count("A+")
    assert notes.pop("Quiet or Wide open") == own.count("A+very-high")
    assert {*notes} == {"no prediction: Hard to say, at times"}
    for name in ("2001", "A+"):
        lists = Eaf(str(exported / f"{name}.eaf"))
        for kind, values in (("levels", LEVELS.values()), ("concepts", CONCEPTS)):
            offered = [text for ((text, *_),), _ in lists.get_cv_entries(kind).values()]
            assert offered == [getattr(value, "name", value) for value in values]


def test_reasons_have_full_names(runs, exported):
    run = runs["levels"].folder
    text = run_obygaze("models", "predict", run, "--estimator", "pcbm-logistic", code=0).stdout
    [cell] = {
        row["parts in the log-odds of A+"]
        for row in csv_rows(exported / "all.csv")
        if (row["model"], row["test"], row["clip"]) == ("pcbm-logistic", "A vs A+", "s0-01")
    }
    reasons = cell.split("|")
    names = {reason.rpartition(" ")[0] for reason in reasons}
    assert names == {"smoke, fire", "red vs blue", "A", "at rest (intercept)"}
    assert ", ".join(reasons[:3]) in text


def test_a_saved_model_keeps_its_level_names(runs, world2, tmp_path):
    line = next(line for line in runs["levels"].models() if line["model"] == "logistic")
    about = om.load_model(line["folder"])[1]
    assert [*about["levels"].items()] == [*LEVELS.items()]
    assert about["senses"] == {c.name: "seen" if c.visual else "" for c in CONCEPTS}
    assert runs["levels"].header.manifest.levels == about["levels"]
    assert runs["levels"].header.manifest.senses == about["senses"]
    predictions = om.predict(line["folder"], world2.store).predicted
    ask = ("models", "predict", line["folder"], world2.store, "--elan")
    run_obygaze(*ask, tmp_path / "own", code=0)
    named = {LEVELS[code]: predictions.count(code) for code in ("A", "A+")}
    assert tier_texts(tmp_path / "own", "logistic: A vs A+") == named


def test_comparisons_and_moments_use_full_names(runs, world2, tmp_path):
    run = runs["levels"]
    compared = json.loads(run_obygaze("models", "compare", run.folder, "--json", code=0).stdout)
    assert {row["test"] for row in compared["comparisons"]} == {"A vs A+", WIDE}
    areas = [row["scores"]["auroc"]["difference"] for row in compared["comparisons"]]
    assert {area["groups"] for area in areas} == {len(FILMS)}
    run_obygaze(
        "models", "moments", run.folder, world2.store, "-o", tmp_path / "m.csv",
        "--elan", tmp_path, "--threshold", 0.2, code=0,
    )  # fmt: skip
    moments = csv_rows(tmp_path / "m.csv")
    assert {row["film"].strip("'") for row in moments} == {*FILMS}
    assert {path.stem for path in tmp_path.glob("*.eaf")} == {*FILMS}
    for row in moments:
        assert 0 <= float(row["start"]) < float(row["end"]) <= SCENES * SECONDS
    frames = run.frames()
    assert frames.about["levels"] == LEVELS


@pytest.mark.parametrize(
    ("films", "reason"),
    [
        pytest.param(
            ("2001",), "the scores are over 1 film, but 5 are needed", marks=pytest.mark.gate
        ),
        pytest.param((), "no clip has a film", marks=pytest.mark.gate),
        (("2001", "1984", "a", "b", ""), "the scores are over 4 films, but 5 are needed"),
    ],
)
def test_few_films_or_none_give_no_interval(tmp_path, films, reason):
    run = run_on(make_world2(tmp_path, films=films), tmp_path / "run", **TASK)
    page = page_of_run(run, tmp_path)
    assert not any(any(scores.interval.values()) for scores in run.model_scores)
    assert "95% intervals in brackets" not in page.text
    assert f"{reason[0].upper()}{reason[1:]}." in page.text
    named = re.findall(r"clips of (\d+) films are", page.text)
    count = len({*films} - {""})
    assert named == ([str(count)] if len({*films}) > 1 else [])


def test_clips_without_a_film_are_counted_without_an_interval(tmp_path):
    world = make_world2(tmp_path, films=(*FILMS, ""))
    run = run_on(world, tmp_path / "run", estimators=("logistic", "majority"), **TASK)
    tested = {clip for fit in fits_of(run) for clip in fit.ids}
    unnamed = sum(clip.startswith("s5-") for clip in tested)
    assert len(run.tested_groups) == len(FILMS)
    assert {scores.films for scores in run.model_scores} == {len(FILMS)}
    fact = f"{unnamed} of {len(tested)} test clips have no film."
    assert fact in page_of_run(run, tmp_path).text
    compared = om.compare(run)
    differences = [row.scores["auroc"].difference for row in compared.comparisons]
    assert {difference.groups for difference in differences} == {len(FILMS)}
    assert any(f"{unnamed} clips" in note.text for note in compared.comparisons[0].notes)


SMOKING = {"NS": "No smoking", "S": "Smoking"}


@pytest.mark.gate
def test_the_papers_codes_may_mean_something_else(tmp_path):
    """Different codes for the same labels give the same targets and scores."""
    scores, models = [], []
    for name, levels in (("paper", SMOKING), ("own", {"no": "No smoking", "yes": "Smoking"})):
        world = make_world2(tmp_path / name, levels=levels)
        low, high = levels
        bank = {key: value for key, value in BANK.items() if key != "negatives"}
        one_class = {"positives": (high,), "train_negatives": (low,), "estimators": (bank,)}
        marks = {"concepts": ("smoke, fire",), "negatives": None if name == "own" else "b"}
        sets = enumerate((one_class, marks))
        pair = [run_on(world, tmp_path / name / str(n), **keys) for n, keys in sets]
        scores.append([entry.by_fit for run in pair for entry in run.model_scores])
        assert len({clip for fit in fits_of(pair[1]) for clip in fit.ids}) == len(world.ids)
        data = om.load_dataset(world.manifest, world.store, concept="smoke, fire")
        assert len(data) == len(world.ids)
        assert {line["facts"]["negatives"] for line in pair[0].models()} == {"b"}
        folder, model = tmp_path / name / "elan", pair[0].models()[0]["folder"]
        run_obygaze("models", "predict", model, world.store, "--elan", folder, code=0)
        assert {*tier_texts(folder, f"pcbm-logistic: {low} vs {high}")} <= {*SMOKING.values()}
        assert not om.evaluate(model, world.store, world.manifest).warnings
        models.append(model)
    assert scores[0] == scores[1]
    renamed = make_world2(tmp_path / "renamed", levels=SMOKING | {"S": "Sure"})
    [warning] = om.evaluate(models[0], renamed.store, renamed.manifest).warnings
    assert (warning.subject, "'Smoking'" in warning.text, "'Sure'" in warning.text) == ("S", 1, 1)
    page = page_of_run(om.load_run(tmp_path / "paper/0"), tmp_path)
    assert "Tested on 120 clips that are No smoking or Smoking" in page.text
    assert not re.search("objectif|Not Sure|Tores", page.text)


def test_a_level_whose_code_is_its_name_is_named_once(tmp_path, tab):
    world = make_world2(tmp_path, levels={"calm": "calm", "tense": "tense"})
    path = om.report(world.manifest, tmp_path / "page.html")
    tab.prefer()
    tab.open(path, width=1280)
    assert tab.texts("#choose-level option") == ["all levels", "calm", "tense"]
    assert not re.search("(calm|tense)[ :(]+\\1", tab.run("document.body.textContent"))


def test_a_scheme_is_recognised_by_its_level_names():
    def scheme(levels):
        return LabelScheme("mine", tuple(Level(*level) for level in levels.items()))

    assert obygaze_scheme().is_obygaze
    assert scheme(PAPER).is_obygaze
    for levels in (SMOKING, {code: code for code in PAPER}, PAPER | {"NS": "No smoking"}):
        assert not scheme(levels).is_obygaze
        assert distances_of(scheme(levels)).name == "even"
    assert sure_task(scheme(SMOKING)) == (("S",), ("NS",))
