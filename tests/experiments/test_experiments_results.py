import contextlib
import csv
import json
import shutil
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.metrics import f1_score

import cli
from obygaze_features.common.files import sha256_of
from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Items, Manifest
from obygaze_models.experiments.record import seal
from obygaze_models.experiments.run import run_experiment
from obygaze_models.experiments.run_folder import (
    FILES,
    Run,
    average_over_fits,
    load_run,
    read_results,
    saved_models,
)
from obygaze_models.explain.attributions import attribute
from obygaze_models.explain.clips import TreePath, explain_clip
from obygaze_models.persistence import load_model
from tests.world import make_world, write_store


@pytest.fixture(scope="module")
def marked(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("marked"), marked=True)


@pytest.fixture(scope="module")
def results(marked, experiment, tmp_path_factory):
    estimators = ("mlp", "pcbm-tree", "pcbm-logistic", "pcbm-hybrid", "oracle-tree", "majority")
    changed = replace(
        experiment, manifest=marked.manifest, store=marked.store, estimators=estimators
    )
    done = run_experiment(changed, tmp_path_factory.mktemp("runs") / "run")
    return read_results(done.folder)


def test_predictions_score_as_run_json_says(results):
    for of in results.run.record.scores:
        said = [one for one in results.said if (one.model, one.test) == (of.model, of.test)]
        assert [one.fit for one in said] == of.fits
        for one, scores in zip(said, of.by_fit, strict=True):
            if scores["f1"] is not None:
                assert f1_score(one.labels, one.probabilities > 0.5) == pytest.approx(scores["f1"])


def test_explanations_are_those_of_the_saved_models(results, marked):
    """Clip by clip, by the model that lies beside them."""
    lines = (results.run.folder / "models.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    saved = {(row["model"], row["fit"]): results.run.folder / row["folder"] for row in rows}
    assert {one.model: one.kind for one in results.explained} == {
        "mlp": "sensitivity",
        "pcbm-tree": "path",
        "pcbm-logistic": "sum",
        "pcbm-hybrid": "sum",
    }
    assert len(results.explained) == 4 * 9
    bank = load_model(saved["pcbm-tree", 3])[0].bank_
    for one in (one for one in results.explained if one.fit == 3):
        model, _ = load_model(saved[one.model, one.fit])
        for row, clip in enumerate(one.ids):
            x = marked.features[marked.ids.index(clip)]
            if one.kind == "sensitivity":
                parts = attribute(model, x[None], classes=("HN", "S"), bank=bank)
                np.testing.assert_allclose(one.amounts[row], parts.amounts[0], rtol=1e-4, atol=1e-6)
                assert one.labels[row] == parts.labels[0] == "S"
                continue
            why = explain_clip(model, x, classes=("HN", "S")).why
            if isinstance(why, TreePath):
                assert [(s.concept, s.above) for s in one.steps[row]] == [
                    (s.concept, s.above) for s in why.steps
                ]
                continue
            amounts = {part.concept: part.amount for part in why.contributions}
            given = dict(zip(one.concepts, one.amounts[row], strict=True))
            assert given == pytest.approx(amounts, rel=1e-4, abs=1e-6)
            assert one.labels[row] == why.label == "S"
            left = 0 if one.residual is None else one.residual[row]
            whole = one.amounts[row].sum() + one.intercept[row] + left
            assert whole == pytest.approx(why.logit, abs=1e-4)


def test_every_annotated_clip_is_there_and_says_why_it_took_no_part(results, marked):
    manifest = Manifest.load(marked.manifest)
    assert list(results.clips) == manifest.ids
    assert {clip.used for clip in results.clips.values() if clip.level == "NS"} == {
        "not in the task"
    }
    assert {clip.used for clip in results.clips.values() if clip.level != "NS"} == {""}
    clip = results.clips["tt2-007"]
    assert (clip.film, clip.title, clip.number, clip.fold) == ("tt2", "tt2", 7, 107 // 4 % 10)
    assert clip.concepts == manifest.labels("all").concepts_of["tt2-007"]


def test_clips_without_features_or_fold_are_named(marked, experiment, tmp_path):
    manifest = Manifest.load(marked.manifest)
    ids = [one for row, one in enumerate(manifest.ids) if row // 40 % 2]
    write_store(
        tmp_path / "half.zarr",
        Manifest("half", Items.of([manifest[one] for one in ids])),
        dict(zip(marked.ids, marked.features, strict=True)),
    )
    changed = replace(experiment, manifest=marked.manifest, store=tmp_path / "half.zarr")
    clips = read_results(run_experiment(changed, tmp_path / "run").folder).clips
    assert len(clips) == 200
    lost = {one for one, clip in clips.items() if clip.used == "no features"}
    assert lost == {
        one
        for one, level in zip(marked.ids, marked.levels, strict=True)
        if one not in ids and level != "NS"
    }


def probability(text, said):
    """The first one, written over."""
    header, first, rest = text.split("\n", 2)
    return f"{header}\n{first.rpartition(',')[0]},{said}\n{rest}"


def damage(folder, name, change):
    path = folder / name
    text = path.read_text(encoding="utf-8")
    assert change(text) != text
    path.write_text(change(text), encoding="utf-8")


def first_score(text: str, value: float, *, sealed: bool = True) -> str:
    """What somebody writes who would have another score, and maybe knows of the digest."""
    record = json.loads(text)
    record["scores"][0]["mean"]["f1"] = value
    return json.dumps(record | ({"sha256": seal(record)} if sealed else {}))


def with_value(text: str, value, *path: str) -> str:
    """A record with another value, and its digest, if it can have one."""
    record = part = json.loads(text)
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    with contextlib.suppress(UnicodeEncodeError):
        record["sha256"] = seal(record)
    return json.dumps(record)


def without(text: str, *path: str) -> str:
    """A sealed record that lacks a key."""
    record = part = json.loads(text)
    for key in path[:-1]:
        part = part[key]
    del part[path[-1]]
    return json.dumps(record | {"sha256": seal(record)})


@pytest.mark.parametrize(
    "path",
    [
        ("experiment", "estimators"),
        ("experiment", "seed"),
        ("versions", "scikit-learn"),
        ("store", "backbone", "name"),
    ],
)
def test_a_key_that_a_sealed_record_lacks_is_named(results, tmp_path, path):
    shutil.copytree(results.run.folder, tmp_path / "run")
    damage(tmp_path / "run", "run.json", lambda text: without(text, *path))
    outcome = CliRunner().invoke(
        cli.main, ["report", str(tmp_path / "run"), "-o", str(tmp_path / "page.html")]
    )
    assert outcome.exit_code == 1
    assert isinstance(outcome.exception, SystemExit)
    assert f"`{path[-1]}`" in outcome.output
    assert f"`{path[-2]}`" in outcome.output


@pytest.mark.parametrize("lost", ["run.json", *FILES])
def test_an_incomplete_folder_is_one_line(results, tmp_path, lost):
    shutil.copytree(results.run.folder, tmp_path / "run")
    (tmp_path / "run" / lost).unlink()
    with pytest.raises(ExperimentError, match=lost) as caught:
        read_results(tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert "obygaze models run" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("predictions.csv", lambda t: t[: len(t) // 2], "predictions.csv was changed since"),
        ("predictions.csv", lambda t: probability(t, "0.25"), "predictions.csv was changed since"),
        ("clips.csv", lambda t: t.replace("tt0,tt0", "tt0,tt9", 1), "clips.csv was changed since"),
        ("explanations.jsonl", lambda t: t[:-200], "jsonl was changed since"),
        ("models.jsonl", lambda t: t[:-200], "models.jsonl was changed since"),
        ("run.json", lambda t: t.replace('"format_version": 4', '"format_version": 3'), "earlier"),
        ("run.json", lambda t: t.replace('"format_version": 4', '"format_version": 5'), "update"),
        ("run.json", lambda t: first_score(t, 7.5, sealed=False), "its digest is another"),
        ("run.json", lambda t: t.replace('"sha256":', '"other":', 1), "its digest is another"),
        ("run.json", lambda t: first_score(t, 7.5), r"Expected `float` <= 1.*at `\$.scores"),
        ("run.json", lambda t: first_score(t, -3), r"Expected `float` >= -.*at `\$.scores"),
        ("run.json", lambda t: first_score(t, 0.75), "the f1 of mlp on .* is not that of its pred"),
        ("run.json", lambda t: with_value(t, "\ud800", "goal"), r"not valid JSON.*surrogates"),
        ("run.json", lambda t: with_value(t, 5, "store", "backbone", "weights_sha256"), "Expected"),
        ("run.json", lambda t: t[:900], "cut off, make it again with: obygaze models run"),
    ],
)
def test_a_damaged_folder_is_one_line(results, tmp_path, name, change, said):
    shutil.copytree(results.run.folder, tmp_path / "run")
    damage(tmp_path / "run", name, change)
    with pytest.raises(ExperimentError, match=said) as caught:
        read_results(tmp_path / "run")
    assert "\n" not in str(caught.value)


def test_of_three_classes_each_has_its_probability(marked, experiment, tmp_path):
    changed = replace(
        experiment,
        manifest=marked.manifest,
        store=marked.store,
        positives=(),
        train_negatives=(),
        test_negatives=(),
        levels=("EN", "HN", "S"),
        estimators=("pcbm-logistic",),
    )
    found = read_results(run_experiment(changed, tmp_path / "run").folder)
    with (tmp_path / "run/predictions.csv").open(encoding="utf-8", newline="") as file:
        first = next(csv.DictReader(file))
    said = found.said[0]
    assert found.classes("EN / HN / S") == ("EN", "HN", "S")
    assert said.probabilities.shape == (len(said.ids), 3)
    assert said.probabilities[0, 1] == float(first["probability_HN"])
    explained = found.explained[0]
    best = said.probabilities.argmax(axis=1)
    order = [explained.ids.index(one) for one in said.ids]
    assert [explained.labels[at] for at in order] == [("EN", "HN", "S")[at] for at in best]


def test_saved_models_are_read_or_refused_in_one_line(results, tmp_path):
    models = saved_models(results.run)
    assert [one["fit"] for one in models if one["model"] == "mlp"] == list(range(9))
    text = (results.run.folder / "models.jsonl").read_text(encoding="utf-8")
    (tmp_path / "models.jsonl").write_text(
        text.replace('"folder": "models', '"folder": "..', 1), encoding="utf-8"
    )
    with pytest.raises(ExperimentError, match=r"models\.jsonl was changed since"):
        saved_models(replace(results.run, folder=tmp_path))
    files = results.run.record.files | {"models.jsonl": sha256_of(tmp_path / "models.jsonl")}
    forged = msgspec.structs.replace(results.run.record, files=files)
    with pytest.raises(ExperimentError, match="is not in the run"):
        saved_models(Run(tmp_path, forged))


def test_a_folder_of_runs_names_one(results):
    with pytest.raises(ExperimentError, match=r"is not a run; did you mean .*/run\?"):
        read_results(results.run.folder.parent)


def test_means_average_over_fits_are_those_of_a_plain_loop(results):
    """A clip that a run tested in two test sets counts once."""
    said = [one for one in results.said if one.model == "mlp"]
    assert len({one.test for one in said}) > 1
    by_clip = {}
    for one in said:
        for clip, label, p in zip(one.ids, one.labels, one.probabilities, strict=True):
            by_clip.setdefault(clip, (int(label), {}))[1][one.fit] = float(p)
    found = average_over_fits(said)
    assert found.ids == sorted(by_clip)
    for row, clip in enumerate(found.ids):
        label, each = by_clip[clip]
        mean = sum(each.values()) / len(each)
        assert found.probabilities[row] == pytest.approx(mean)
        assert (found.low[row], found.high[row]) == (min(each.values()), max(each.values()))
        assert (found.fits[row], found.labels[row]) == (len(each), label)
        assert found.wrong[row] == ((mean > 0.5) != label)


def test_a_run_answers_in_rows(results):
    run = load_run(results.run.folder)
    rows = {(row["model"], row["test"], row["metric"]): row for row in run.scores()}
    scores = run.record.scores[0]
    row = rows[scores.model, scores.test, "f1"]
    assert (row["mean"], row["std"]) == (scores.mean["f1"], scores.std["f1"])
    assert (row["low"], row["high"]) == scores.interval["f1"]
    assert len(rows) == sum(len(scores.mean) for scores in run.record.scores)
    assert [fit.ids for fit in run.predictions()] == [fit.ids for fit in results.said]
    assert run.clips().keys() == results.clips.keys()
    assert [why.model for why in run.explanations()] == [why.model for why in results.explained]
    model, about = load_model(run.models()[0]["folder"])
    assert about["model"] == run.record.models[0]
    assert hasattr(model, "predict_proba")
    assert len(repr(run)) < 300
    assert "<table>" in run._repr_html_()
