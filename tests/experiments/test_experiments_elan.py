"""Predictions by film, of a model or held out in a run, for ELAN and spreadsheets."""

import itertools
from collections import defaultdict
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from pympi.Elan import Eaf

import obygaze_models as om
from obygaze_features.common.tables import format_rows, format_spreadsheet
from obygaze_features.errors import OutputExists
from obygaze_features.manifests import Item, Items, LabelSet, Manifest, obygaze_scheme
from obygaze_models.experiments import exports
from tests.conftest import run_obygaze
from tests.kit.files import contents, csv_rows, refused
from tests.kit.run import write_store
from tests.kit.timelines import check_schema

ITEMS = [
    Item("one-1", film="Été", media="Été à Paris.mp4", start=0.0, end=10.0004),
    Item("one-3", film="Été", media="Été à Paris.mp4", start=20.0, end=30.5),
    Item("one-2", film="Été", media="Été à Paris.mp4", start=10.0004, end=20.0),
    Item("one-over", film="Été", media="Été à Paris.mp4", start=15.0, end=25.0),
    Item("one-instant", film="Été", media="Été à Paris.mp4", start=31.0, end=31.0001),
    Item("two-1", film="été", media="=cmd|'calc'!A0.avi", start=1.5, end=2.25),
    Item("reel-1", film="reels", media="reel.1.mkv", start=0.0, end=1.0),
    Item("reel-2", film="reels", media="reel.2\x0b.mkv", start=0.0, end=1.0),
    Item("none-1", media="loose.mp4", start=5.0, end=6.0),
    Item("whole", film="Été", media="whole.mp4"),
]
CONCEPTS = ("Look", "Body")
FILMS = ("juno", "tt0120338", "=film")
CLIPS = 40
KIND = "parts in the log-odds of S"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("spans") / "spans.zarr"
    manifest, chance = Manifest("spans", Items.of(ITEMS)), np.random.default_rng(3)
    write_store(path, manifest, {item.id: chance.normal(size=8) for item in ITEMS})
    return path


def annotations(root, tier_name):
    """Return the texts of a tier, by the annotation that each refers to."""
    [tier] = [tier for tier in root.iter("TIER") if tier.get("TIER_ID") == tier_name]
    notes = tier.iter("REF_ANNOTATION")
    return {note.get("ANNOTATION_REF"): note.findtext("ANNOTATION_VALUE") for note in notes}


def test_predictions_are_written_to_a_file_and_shown_in_a_line(model, store, tmp_path):
    predictions, path = om.predict(model, store), tmp_path / "p.csv"
    assert predictions.to_csv(path) is None
    assert pd.read_csv(path)["id"].tolist() == predictions.ids
    assert path.read_text(encoding="utf-8") == predictions.to_csv()
    path.write_text("mine")
    with pytest.raises(OutputExists, match="already exists"):
        predictions.to_csv(str(path))
    assert path.read_text() == "mine"
    predictions.to_csv(str(path), overwrite=True)
    assert path.read_text(encoding="utf-8") == predictions.to_csv()
    assert [entry.name for entry in tmp_path.iterdir()] == ["p.csv"]
    shown = repr(predictions)
    assert len(shown) < 100
    for fact in ("logistic", f"{len(predictions.ids)} clips", *predictions.classes):
        assert fact in shown


def test_pympi_reads_the_predictions_and_times(model, store, tmp_path):
    predictions = om.predict(model, store)
    predicted = dict(zip(predictions.ids, predictions.predicted, strict=True))
    sure = dict(zip(predictions.ids, predictions.probabilities[:, 1].tolist(), strict=True))
    run_obygaze("models", "predict", model, store, "--elan", tmp_path / "films", code=0)
    files = {path.name: path for path in (tmp_path / "films").iterdir()}
    assert {*files} == {"Été.eaf", "été-2.eaf", "reel.1.eaf", "reel.2-.eaf", "loose.eaf"}
    levels = Eaf(str(files["Été.eaf"])).get_cv_entries("levels").values()
    assert [entry for ((entry, *_),), _ in levels] == [x.name for x in obygaze_scheme().levels]
    heard = {}
    for path in files.values():
        check_schema(ElementTree.parse(path).getroot())
        assert str(tmp_path) not in path.read_text(encoding="utf-8")
        read = Eaf(str(path))
        for tier in (name for name in read.get_tier_names() if "," not in name):
            spans = sorted(read.get_annotation_data_for_tier(tier))
            assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))
            clips = read.get_ref_annotation_data_for_tier(f"{tier}, clip")
            shares = read.get_ref_annotation_data_for_tier(f"{tier}, probability of S")
            by_time = {(start, end): value for start, end, value, *_ in spans}
            values = {(start, end): float(value) for start, end, value, *_ in shares}
            for start, end, clip, *_ in clips:
                heard[clip] = start, end, by_time[start, end], values[start, end]
    spans = [item for item in ITEMS if item.start is not None]
    assert set(heard) == {item.id for item in spans}
    for item in spans:
        start = round(item.start * 1000)
        end = max(round(item.end * 1000), start + 1)
        assert heard[item.id][:3] == (start, end, obygaze_scheme().name_of[predicted[item.id]])
        assert heard[item.id][3] == pytest.approx(sure[item.id], abs=5e-4)
    # ELAN looks for the film next to the file.
    [linked] = Eaf(str(files["Été.eaf"])).get_linked_files()
    assert linked["RELATIVE_MEDIA_URL"] == "./Été à Paris.mp4"


def test_synthetic_and_training_clips_are_marked(model, world, tmp_path):
    items = [Item(clip, film="all", media="all.mp4", start=float(row), end=row + 1.0)
             for row, clip in enumerate(world.ids)]  # fmt: skip
    drawn = Items.of(items, {"synthetic": ["drawn by a test"] * len(items)})
    write_store(tmp_path / "s.zarr", Manifest("toy", drawn), world.rows)
    seen = om.predict(model, tmp_path / "s.zarr").about["seen"]
    run_obygaze("models", "predict", model, tmp_path / "s.zarr", "--elan", tmp_path, code=0)
    root = ElementTree.parse(tmp_path / "all.eaf").getroot()
    marks = annotations(root, "logistic: HN vs S, seen in training")
    clips = annotations(root, "logistic: HN vs S, clip")
    assert {clips[mark] for mark in marks} == set(seen)
    assert len(seen) < len(world.ids)
    warnings = [p.text for p in root.iter("PROPERTY") if p.get("NAME", "").startswith("warning")]
    assert warnings == ["Not a real result: the clips are synthetic (drawn by a test)."]
    nowhere = run_obygaze("models", "predict", model, world.store, "--elan", tmp_path / "x")
    refused(nowhere, "none of the 200 clips has start and end times")


def test_films_that_divide_a_file_are_in_one_document(model, tmp_path):
    items = [
        Item("part-1", film="first half", media="rick.mp4", start=0.0, end=2.0),
        Item("part-2", film="second half", media="rick.mp4", start=2.0, end=4.0),
        Item("part-3", film="first half", media="rick.mp4", start=4.0, end=6.0),
        # Two files of the same name, in folders of their films: their times overlap.
        Item("same-1", film="a", media="film.mp4", start=0.0, end=2.0),
        Item("same-2", film="b", media="film.mp4", start=1.0, end=4.0),
    ]
    path = tmp_path / "halves.zarr"
    rows = {item.id: np.ones(8) for item in items}
    write_store(path, Manifest("halves", Items.of(items)), rows)
    run_obygaze("models", "predict", model, path, "--elan", tmp_path / "films", code=0)
    documents = {file.name: Eaf(str(file)) for file in (tmp_path / "films").glob("*.eaf")}
    assert {*documents} == {"rick.eaf", "a.eaf", "b.eaf"}
    [tier] = [name for name in documents["rick.eaf"].get_tier_names() if name.endswith("vs S")]
    spans = sorted(note[:2] for note in documents["rick.eaf"].get_annotation_data_for_tier(tier))
    assert spans == [(0, 2000), (2000, 4000), (4000, 6000)]


def test_elan_files_are_not_replaced(model, store, tmp_path):
    films = tmp_path / "films"
    ask = ["models", "predict", model, store, "--elan", films, "-o", tmp_path / "t.csv"]
    run_obygaze(*ask, code=0)
    before = contents(tmp_path)
    refused(run_obygaze(*ask, "--overwrite"), ".eaf already exists; choose another folder")
    assert contents(tmp_path) == before


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder, chance = tmp_path_factory.mktemp("held-out"), np.random.default_rng(5)
    items = [
        Item(f"f{at}-{n:03}", film=film.strip("="), media=film, start=10.0 * n, end=10.0 * n + 10)
        for at, film in enumerate(FILMS)
        for n in range(CLIPS)
    ]
    shows = chance.random((len(items), 2)) < 0.5
    features = chance.normal(size=(len(items), 8)).astype(np.float32)
    features[:, :2] += 3 * shows
    sure = shows[:, 0] & (chance.random(len(items)) < 0.9)
    levels = np.select([sure, shows.any(axis=1)], ["S", "HN"], "EN").tolist()
    concepts = [tuple(np.array(CONCEPTS)[row].tolist()) for row in shows]
    labels = LabelSet("all", [item.id for item in items], levels, concepts)
    extra = {"movie_title": ["Juno" if item.film == "juno" else "" for item in items]}
    manifest = Manifest("spans", Items.of(items, extra), scheme=obygaze_scheme())
    manifest = manifest.with_parts(labels=[labels])
    manifest.save(folder / "manifest")
    write_store(folder / "spans.zarr", manifest, dict(zip(manifest.ids, features, strict=True)))
    experiment = om.Experiment(
        "Sure", folder / "manifest", folder / "spans.zarr", protocol="leave-film-out",
        positives=("S",), train_negatives=("EN", "HN"),
        estimators=({"name": "pcbm-logistic", "bank__C": 0.1}, {"name": "mlp", "max_iter": 5}),
    )  # fmt: skip
    return om.run_experiment(experiment, folder / "run")


def test_each_clip_has_the_mean_over_its_test_fits(run, tmp_path):
    run_obygaze("models", "predict", run.folder, "-o", tmp_path / "all.csv", code=0)
    stated = defaultdict(list)
    for row in csv_rows(run.folder / "predictions.csv"):
        stated[row["model"], row["id"]].append(float(row["probability"]))
    rows = csv_rows(tmp_path / "all.csv")
    assert sorted((row["model"], row["clip"]) for row in rows) == sorted(stated)
    for row in rows:
        mean = np.mean(stated[row["model"], row["clip"]])
        assert float(row["probability"]) == pytest.approx(mean, abs=1e-6)
        assert row["probability of"] == "S"
        assert row["prediction"] == ("S" if mean > 0.5 else "EN+HN")
    assert {row["title"]: row["file"] for row in rows} == {
        "Juno": "juno", "Titanic (1997)": "tt0120338", "film": "'=film"}  # fmt: skip
    [row] = [row for row in rows if (row["clip"], row["model"]) == ("f1-007", "pcbm-logistic")]
    times = [row[name] for name in ("from", "to", "start", "end")]
    assert times == ["0:01:10", "0:01:20", "70.000", "80.000"]
    labels = Manifest.load(run.record.experiment.manifest).labels()
    assert row["label"] == labels.level_of["f1-007"]
    assert row["concepts"] == ", ".join(labels.concepts_of["f1-007"])


def test_parts_agree_in_every_output(run, tmp_path):
    outputs = ("-o", tmp_path / "all.csv", "--elan", tmp_path)
    run_obygaze("models", "predict", run.folder, *outputs, code=0)
    eaf = Eaf(str(tmp_path / "Titanic (1997).eaf"))
    levels = [entry for ((entry, *_),), _ in eaf.get_cv_entries("levels").values()]
    assert levels == [level.name for level in obygaze_scheme().levels]
    [tier] = [name for name in eaf.get_tier_names() if name.endswith(KIND)]
    parts = eaf.get_ref_annotation_data_for_tier(tier)
    visible = {f"f1-{int(part[0]) // 10_000:03}": part[2] for part in parts}
    assert len(visible) == CLIPS
    rows = [row for row in csv_rows(tmp_path / "all.csv") if row["model"] == "pcbm-logistic"]
    assert visible.items() <= {row["clip"]: row[KIND] for row in rows}.items()
    reasons = run.reasons()
    own = reasons[(reasons["model"] == "pcbm-logistic") & reasons["id"].isin(visible)]
    assert own["fit"].nunique() > 1
    means = own.pivot_table(index="id", columns="concept", values="part", observed=True)
    for clip, text in visible.items():
        amounts = means.loc[clip].drop("(intercept)").sort_values(key=abs, ascending=False)
        pieces = [part.rpartition(" ") for part in text.split(", ")]
        *named, (rest, _, value) = pieces
        assert [name for name, _, _ in named] == amounts.index.tolist()
        assert [float(x) for _, _, x in named] == pytest.approx(amounts.tolist(), abs=0.0051)
        at_rest = pytest.approx(means.loc[clip, "(intercept)"], abs=0.0051)
        assert (rest, float(value)) == ("at rest (intercept)", at_rest)


def test_annotators_levels_are_offered_and_models_tiers_are_ignored(run, tmp_path):
    run_obygaze("models", "predict", run.folder, "--elan", tmp_path, code=0)
    document = Eaf(str(tmp_path / "Titanic (1997).eaf"))
    predicted = {
        int(float(row.cells["start"])): row.cells["prediction"]
        for row in exports.held_out(run, model="mlp")
        if row.film == "tt0120338"
    }
    [tier] = [t for t in document.get_tier_names() if t.startswith("mlp: ") and "," not in t]
    notes = document.get_annotation_data_for_tier(tier)
    words = {"EN+HN": "Easy Negative or Hard Negative", "S": "Sure"}  # as annotators' tiers have
    assert {start // 1000: value for start, _, value in notes} == {
        start: words[label] for start, label in predicted.items()
    }
    kind = document.get_parameters_for_tier(tier)["LINGUISTIC_TYPE_REF"]
    assert document.linguistic_types[kind]["CONTROLLED_VOCABULARY_REF"] == "levels"
    alone = run_obygaze(
        "annotations", "import", "elan", tmp_path / "Juno.eaf", "-o", tmp_path / "t"
    )
    assert "no readable segments in Juno.eaf" in alone.output


def test_a_gap_ends_a_stretch_without_predictions(run, monkeypatch):
    clips = run.clips()
    ends = clips[(clips["film"] == "juno") & (clips["level"] == "EN")].iloc[[0, -1]].copy()
    monkeypatch.setattr(type(run), "clips", lambda _: ends)
    rows = exports._without_prediction(run, [exports.Row("juno", "", {"clip": ""}, "mlp", None)])
    spans = [*zip(ends["start"] * 1000, ends["end"] * 1000, strict=True)]
    assert [(row.note.start, row.note.end) for row in rows] == spans
    # A clip inside a longer clip does not end a stretch; its latest clip does.
    latest = ends["end"].max() + 10
    ends.iloc[0, ends.columns.get_loc("end")] = latest
    rows = exports._without_prediction(run, [exports.Row("juno", "", {"clip": ""}, "mlp", None)])
    [span] = [(row.note.start, row.note.end) for row in rows]
    assert span == (ends["start"].iloc[0] * 1000, latest * 1000)


@pytest.mark.parametrize(("arguments", "fact"), [
    ("{run} x.zarr", "a run takes none"),
    ("{run} --estimator mpl", "did you mean mlp"),
    ("{out}", "a model needs a STORE"),
    ("{out} x.zarr --estimator mlp", "--estimator is for runs"),
])  # fmt: skip
def test_incompatible_options_are_refused(run, tmp_path, arguments, fact):
    words = arguments.format(run=run.folder, out=tmp_path).split()
    result = run_obygaze("models", "predict", *words)
    assert result.exit_code != 0
    assert fact in result.output


def test_table_cells_are_never_formulas():
    columns = {"=name": ["=1+1", "+x", "-0.5", "@low"], "b": ["-x", "1", "a=b", ""]}
    rows = [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
    for text in (format_spreadsheet(columns), format_rows(rows)):
        assert text == "'=name,b\n'=1+1,'-x\n'+x,1\n-0.5,a=b\n'@low,\n"
