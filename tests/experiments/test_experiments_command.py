"""``obygaze models run`` and its output; models for use, trained, asked and scored."""

import json
import re
import shutil
from collections import Counter
from dataclasses import replace
from unittest.mock import Mock

import msgspec
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import obygaze_models as om
from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Item, Items, Manifest, Split
from obygaze_models.commands._shared import echo_warnings
from obygaze_models.data.warnings import RunWarning
from obygaze_models.experiments.messages import messages_of
from obygaze_models.experiments.summary import describe_run, describe_scores, headline
from tests.conftest import run_obygaze
from tests.kit.files import csv_rows
from tests.kit.run import FILMS, RECIPE, make_world, write_experiment, write_store


@pytest.fixture
def write(tmp_path, monkeypatch, world):
    """Write an experiment's file to the current folder, with `parts` added to a manifest's copy."""
    monkeypatch.chdir(tmp_path)

    def write(name="sure", parts=(), **keys):
        if parts:
            manifest = Manifest.load(world.manifest).with_parts(splits=list(parts))
            manifest.save(tmp_path / "manifest")
            keys["manifest"] = "manifest"
        values = {"train_negatives": ["EN"], "estimators": ["majority"]} | keys
        return write_experiment(tmp_path / f"{name}.toml", world, **values)

    return write


def test_run_prints_scores_and_the_output_folder(write, tmp_path):
    write(estimators=["logistic"])
    result = run_obygaze("models", "run", "sure.toml", code=0)
    note, first, wrote, *tables = result.stdout.splitlines()
    assert note == "Tests 10 of 100 clips"
    record = json.loads((tmp_path / "runs/sure/run.json").read_text(encoding="utf-8"))
    score = record["scores"][0]["mean"]["auroc"]
    assert (
        f"logistic rates the Sure one higher {score:.0%} of the time (AUROC {score:.2f}; too few"
        in first
    )
    assert wrote == "Wrote runs/sure"
    assert "Easy Negative vs Sure: 5 of 10 positive" in tables
    assert max(map(len, tables)) <= 100


SLIPS = [
    ("run other.toml", 1, ["other.toml cannot be read: No such file"]),
    ("run url.toml", 1, ["127.0.0.1:1/x.zarr"]),
    ("run two.toml", 1, ["several splits: other, ten. Name one", 'split = "NAME"']),
    ("train sure.toml --estimator majorty", 1, ["did you mean majority"]),
    ("predict nope -o nope.csv", 2, ["a model needs a STORE"]),
    ("predict nope x.zarr -o nope.csv", 1, ["nope does not exist"]),
]


@pytest.mark.parametrize(("arguments", "code", "facts"), SLIPS)
def test_user_errors_are_one_line_without_secrets(write, world, tmp_path, arguments, code, facts):
    write("two", [Split("other", world.ids, world.folds)], split=None)
    write("url", store="http://ann:hush@127.0.0.1:1/x.zarr?token=hush")
    write()
    result = run_obygaze("models", *arguments.split(), code=code)
    assert all(fact in result.stderr for fact in facts), result.stderr
    assert "hush" not in result.output
    assert "Traceback" not in result.output
    assert not [*tmp_path.glob("runs/*")]


def test_the_remedy_of_an_error_is_a_valid_command(write, world, tmp_path):
    """Drawn folds test none of the three Sure clips; the named split does."""
    labels, sure = Manifest.load(world.manifest).labels(), world.clips("S")[3:]
    rest = labels.where(lambda clip: clip not in sure)
    Manifest.load(world.manifest).with_parts(labels=[rest]).save(tmp_path / "few")
    write(manifest="few", split="")
    result = run_obygaze("models", "run", "sure.toml")
    remedy = re.search(r'obygaze (manifests split .*?), and split = "(\w+)"', result.stderr)
    assert run_obygaze(*remedy[1].split()).exit_code == 0
    write(manifest="few", split=remedy[2])
    assert run_obygaze("models", "run", "sure.toml").exit_code == 0


def test_a_model_for_use_needs_a_stopping_fold_of_every_class(write, world, tmp_path):
    """Here the last fold has only Easy Negatives."""
    pairs = zip(world.folds, world.levels, strict=True)
    folds = [10 if pair == (9, "EN") else pair[0] for pair in pairs]
    folds[world.ids.index(world.clips("S", folds=[9])[0])] = 7
    write(parts=[Split("late", world.ids, folds)], split="late", estimators=["mlp"])
    result = run_obygaze("models", "train", "sure.toml", "-o", "sure", code=0)
    held = len(world.clips("EN", "S", folds=[8]))  # one clip more than in the later folds
    assert f"validated   {held}\n" in result.stdout


def test_ten_clips_suffice_to_train_a_model(write, world, tmp_path):
    """Each drawn fold has one clip; the last two with both classes are for early stopping."""
    clips = {*world.clips("S")[:5], *world.clips("EN")[:5]}
    labels = Manifest.load(world.manifest).labels().where(lambda clip: clip in clips)
    Manifest.load(world.manifest).with_parts(labels=[labels]).save(tmp_path / "few")
    write(manifest="few", split="", estimators=["mlp"])
    result = run_obygaze("models", "train", "sure.toml", "-o", "ten", code=0)
    assert "trained     8\nvalidated   2\n" in result.stdout
    clips -= {*world.clips("S")[1:5]}
    labels = labels.where(lambda clip: clip in clips)
    Manifest.load(world.manifest).with_parts(labels=[labels]).save(tmp_path / "fewer")
    write(manifest="fewer", split="", estimators=["mlp"])
    result = run_obygaze("models", "train", "sure.toml", "-o", "one", code=1)
    assert "two clips of each class" in result.stderr


def test_the_only_split_is_the_default(write, world, tmp_path):
    write(parts=[Split("ten", world.ids, world.folds)], split=None)
    notes = {"ten": "folds of ten, the only split of toy", "stratified, 10 folds, seed 0": ""}
    for split, words in notes.items():
        assert words in run_obygaze("models", "run", "sure.toml", "--overwrite", code=0).stderr
        assert om.load_run("runs/sure").record.split == split
        for path in (tmp_path / "manifest/splits").iterdir():
            path.unlink()


def test_many_films_print_as_a_range_by_default(make_run):
    run = make_run("films", protocol="leave-film-out", split=None)
    record = run.record
    scores = record.scores[0]
    groups = {f"film {film}": list(scores.groups.values())[film % FILMS] for film in range(20)}
    scores = [msgspec.structs.replace(scores, groups=groups)]
    run_of_many = replace(run, record=msgspec.structs.replace(record, scores=scores))
    means = sorted(group["auroc"] for group in groups.values())
    text = describe_run(run_of_many)
    assert f"logistic: from {means[0]:.2f} (film " in text
    assert f"median {np.median(means):.2f}" in text
    assert "AUROC (0.5 is chance) by film, 20 films" in text
    full = describe_run(run_of_many, verbose=True).splitlines()
    assert sum(line.startswith("film ") for line in full) == 20
    for count, end in (
        (0, "no clip has a film"), (4, "the scores are over 4 films, but 5 are needed"),
    ):  # fmt: skip
        films = msgspec.structs.replace(record.films, tested=count)
        part = dict(list(groups.items())[:count])
        nothing = dict.fromkeys(record.scores[0].interval)
        changes = {"groups": part, "pooled": count == 0, "interval": nothing}
        scores = [msgspec.structs.replace(record.scores[0], **changes)]
        of_few = msgspec.structs.replace(record, films=films, scores=scores)
        printed = describe_run(replace(run, record=of_few))
        assert f"no interval: {end}" in " ".join(printed.split())
        assert "the interval is over" not in printed
        assert re.search(r"logistic .* -\n", printed)
        [text] = [str(message) for message in messages_of(of_few) if message.code == "one-film"]
        assert end.lower() in text.lower()


def test_train_ignores_the_headline(write):
    write(estimators=["majority", "logistic"], headline="logistic")
    run_obygaze("models", "train", "sure.toml", "-o", "model", code=0)
    assert om.load_model("model")[1]["model"] == "majority"


def test_concept_results_say_how_the_model_was_chosen(make_run, marked):
    changes = {
        "manifest": marked.manifest, "store": marked.store, "concepts": ("Look", "Body"),
        "positives": (), "train_negatives": (), "test_negatives": (), "protocol": "split",
        "estimators": ("majority", "logistic"), "score": "f1",
    }  # fmt: skip
    for name, named, chosen in (
        ("first", None, "majority, the first listed of 2 models"),
        ("named", "logistic", "logistic, the experiment's choice of 2 models"),
        ("alone", None, "logistic"),
    ):
        own = changes | ({"estimators": ("logistic",)} if name == "alone" else {})
        record = make_run(name, **own, headline=named).record
        model = chosen.split(",")[0]
        scores = sorted(s.mean["f1"] for s in record.scores if s.model == model)
        [*_, line] = headline(record)
        assert line.startswith(f"{chosen}: F1 positive from {scores[0]:.2f} (")
        assert f" to {scores[1]:.2f} (" in line
        assert line.endswith(" on 2 tasks")


def test_tables_call_models_by_their_titles(make_run):
    estimators = ({"name": "logistic", "as": "lr"}, "majority")
    run = make_run("titled", estimators=estimators, titles={"lr": "dialogue"})
    assert run.record.models["lr"].title == "dialogue"
    assert {row["model"] for row in run.scores()} == {"lr", "majority"}
    first = headline(run.record)[-1]
    printed = "\n".join([first, describe_run(run), om.compare(run).table()])
    assert len(re.findall(r"^dialogue  ", printed, re.MULTILINE)) >= 2
    assert ", dialogue, the first listed of 2 models, rates the Sure one" in first
    assert "minus dialogue" in printed
    assert not re.search(r"\blr\b", printed)


def test_each_test_set_names_its_average(make_run):
    record = make_run("films", protocol="leave-film-out", split=None).record
    [scores, *_] = record.scores
    pooled = msgspec.structs.replace(scores, test="Rare", groups={}, pooled=True)
    three = dict([*scores.groups.items()][:3])
    short = msgspec.structs.replace(scores, test="Short", groups=three, left_out=["tt4"])
    titles = msgspec.structs.replace(record.films, titles={"tt4": "The Fifth"})
    mixed = msgspec.structs.replace(record, films=titles, scores=[scores, pooled, short])
    text = " ".join(describe_scores(mixed).split())
    for part in (
        f"means over 3 to {FILMS} films; the interval is a t interval",
        "No interval below 5 films: Short.",
        "all test clips together, without an interval, because fewer than two films have clips of "
        "every class: Rare.",
        "Left out, because classes are missing: The Fifth.",
    ):
        assert part in text
    assert mixed.lacks_interval == "some scores are over 1 film, but 5 are needed"
    description = describe_scores(record)
    assert not re.search("together|No interval|Left out", description)


def test_at_most_five_warnings_print_by_default(capsys):
    leaks = [RunWarning("leak", f"task {number}", f"leak {number}") for number in range(3)]
    others = [RunWarning(f"code {number}", "", f"text {number}") for number in range(4)]
    echo_warnings([*others, *leaks, *leaks], verbose=False)
    *lines, rest = capsys.readouterr().err.splitlines()
    assert lines[:4] == [*(f"WARNING: LEAKAGE: leak {number}" for number in range(3)),
                         "WARNING: text 0"]  # fmt: skip
    assert (len(lines), rest) == (5, "WARNING: 2 more warnings; -v prints all")


def test_a_dry_run_lists_fits_failures_and_void_tests(tmp_path, monkeypatch):
    world = make_world(tmp_path / "world", synthetic="drawn at random")
    toml = write_experiment(tmp_path / "e.toml", world, estimators=["logistic", "majority"])
    run = om.run_experiment(toml, tmp_path / "made")
    record = run.record
    first = lambda items, left, right: left[:1]  # noqa: E731
    monkeypatch.setattr("obygaze_models.experiments.outcome.overlapping", first)
    failing = Mock(side_effect=ExperimentError("it fails"))
    monkeypatch.setattr("obygaze_models.experiments.fit.fit_estimator", failing)
    words, facts = (
        run_obygaze("models", "run", toml, "-o", tmp_path / "runs/e", "--dry-run", *options)
        for options in ([], ["--json"])
    )
    sizes = run.fits()["trained"]
    for fact in (
        f"{2 * record.fit_count} fits: logistic, majority in {record.fit_count} folds",
        f"of {record.films.tested} films", f"each trained on {min(sizes)}",
        "seconds on this machine",
        f"{record.join.used} of {record.join.labelled} labelled clips",
    ):  # fmt: skip
        assert fact in words.stdout
    facts_of = ("are synthetic", "LEAKAGE", "SKIPPED", "logistic", "it fails")
    assert all(fact in words.stderr for fact in facts_of)
    planned = json.loads(facts.stdout)
    assert {skip["what"].split(",")[0] for skip in planned["skipped"]} == {"logistic", "majority"}
    assert planned["join"]["labelled"] == 100
    assert planned["fits"] == dict.fromkeys(["logistic", "majority"], record.fit_count)
    assert not (tmp_path / "runs").exists()


def test_a_concept_is_trained_by_its_alias(marked, tmp_path):
    toml = write_experiment(
        tmp_path / "concepts.toml", marked, concepts=["Look", "Body"], positives=None,
        train_negatives=None, estimators=["logistic"],
    )  # fmt: skip
    assert om.train_model(toml, tmp_path / "body", concept="body").task.startswith("Body")
    for name, fact in (("Posture", "'Posture'"), ("Nose", "unknown concept 'Nose'")):
        with pytest.raises(ExperimentError, match=fact):
            om.train_model(toml, tmp_path / "no", concept=name)


RENAMED = "under another id"


def train(folder, world, estimator, name="model", **keys):
    """Train Sure against Hard Negatives with the command; return the model and the output."""
    toml = write_experiment(folder / f"{name}.toml", world, estimators=[estimator], **keys)
    result = run_obygaze("models", "train", toml, "-o", folder / name, code=0)
    return folder / name, result


@pytest.mark.parametrize(
    ("task", "negatives"),
    [({}, 1), ({"protocol": "leave-film-out", "balance": "none"}, 2),
     ({"positives": None, "train_negatives": None, "levels": ["EN", "HN", "S"]}, 2)],
)  # fmt: skip
def test_a_model_for_use_is_balanced_as_in_a_run(world, tmp_path, task, negatives):
    model, _ = train(tmp_path, world, "knn", **({"train_negatives": ["EN", "HN"]} | task))
    sure = {*world.clips("S")}
    counts = Counter(clip in sure for clip in om.load_model(model)[1]["seen"])
    assert counts[False] == negatives * counts[True] > 0


def test_what_became_of_each_clip_is_printed(world, tmp_path):
    """There are 50 clips of each level, and five of each are in the last fold."""
    keys = {"train_negatives": ["EN", "HN"]}
    _, plain = train(tmp_path, world, "logistic", "plain", **keys)
    assert "trained     100\nvalidated   0\ndrawn away  50\n" in plain.stdout
    assert "and 0 for" not in (tmp_path / "plain/README.md").read_text()
    _, stopped = train(tmp_path, world, {"name": "mlp", "max_iter": 2}, "stopped", **keys)
    assert "trained     90\nvalidated   15\ndrawn away  45\n" in stopped.stdout
    cut = {"name": "logistic", "threshold": "validation"}
    assert "trained     90\nvalidated   10\n" in train(tmp_path, world, cut, "cut")[1].stdout


def test_a_model_that_uses_no_validation_clips_trains_on_all(world, model):
    trained = world.clips("HN", "S")
    rows = [world.ids.index(clip) for clip in trained]
    labels = [world.levels[row] == "S" for row in rows]
    plain = LogisticRegression(solver="liblinear").fit(world.features[rows], labels)
    predictions = om.predict(model, world.store)
    expected = plain.predict_proba(world.features)[:, 1]
    np.testing.assert_allclose(predictions.probabilities[:, 1], expected, atol=1e-3)
    seen = dict(zip(predictions.ids, predictions.seen, strict=True))
    assert {clip for clip, value in seen.items() if value == "yes"} == set(trained)
    assert set(predictions.about["seen"]) == set(trained)
    for share, label in zip(predictions.probabilities[:, 1], predictions.predicted, strict=True):
        assert label == ("S" if share > 0.5 else "HN")


def test_unseen_clips_are_scored_or_named(world, tmp_path):
    manifest, labels = Manifest.load(world.manifest), Manifest.load(world.manifest).labels()
    seen, new = (world.clips("HN", "S", folds=folds) for folds in (range(9), [9]))
    old = labels.where(lambda clip: clip in seen)
    manifest.with_parts(labels=[old]).save(tmp_path / "old")
    split = {"manifest": tmp_path / "old", "split": None}
    model, _ = train(tmp_path, world, "logistic", **split)
    for name, ids in (("one", [*seen, *world.clips("HN", folds=[9])]), ("both", [*seen, *new])):
        of_ids = labels.where(lambda clip, ids=ids: clip in ids)
        manifest.select(ids=ids).with_parts(labels=[of_ids]).save(tmp_path / name)
    single, pair = (
        json.loads(
            run_obygaze("models", "evaluate", model, world.store, tmp_path / name, "--json").stdout
        )
        for name in ("one", "both")
    )
    [unscored] = [row for row in single["scores"] if row["on"] == "not seen in training"]
    assert unscored.keys() == {"on", "clips", "positive"}  # they are all of one class
    apart = next(row for row in pair["scores"] if row["on"] == "not seen in training")
    assert (apart["positive"], apart["clips"]) == (len(world.clips("S", folds=[9])), len(new))


def test_unseen_clips_of_films_in_training_are_scored_apart(world, tmp_path):
    """What balance drew away is of the same films; only clips of other films are a test."""
    manifest, labels = Manifest.load(world.manifest), Manifest.load(world.manifest).labels()
    film_of = dict(zip(manifest.ids, manifest.items.films, strict=True))
    few = [clip for clip in world.clips("S") if film_of[clip] not in ("tt0", "tt1")][::2]
    others = [clip for clip in world.clips("HN") if film_of[clip] not in ("tt0", "tt1")]
    trained = labels.where(lambda clip: clip in {*few, *others})
    manifest.with_parts(labels=[trained]).save(tmp_path / "some")
    model, _ = train(tmp_path, world, "logistic", manifest=tmp_path / "some", split=None)
    scored = om.evaluate(model, world.store, world.manifest)
    seen = {*om.load_model(model)[1]["seen"]}
    part = [clip for clip in world.clips("HN", "S") if clip not in seen]
    new = [clip for clip in part if film_of[clip] in ("tt0", "tt1")]
    assert len(part) > len(new)  # balance drew some clips of the other films away
    assert (scored.unseen.clips, scored.apart.clips) == (len(part), len(new))
    assert scored.grouped_by == "film"
    estimator, about = om.load_model(model)
    older = {key: value for key, value in about.items() if key != "seen_groups"}
    om.save_model(estimator, tmp_path / "older", older)
    assert om.evaluate(tmp_path / "older", world.store, world.manifest).apart == scored.apart
    of_new = manifest.select(ids=new)
    of_new.save(tmp_path / "new")
    alone = om.evaluate(model, world.store, tmp_path / "new")
    assert alone.every.scores == scored.apart.scores
    command = ("models", "evaluate", model, world.store, world.manifest, "--json")
    shown = json.loads(run_obygaze(*command).stdout)
    assert (shown["unseen"], shown["of_another_film"]) == (len(part), len(new))
    row = next(own for own in shown["scores"] if own["on"] == "of another film than in training")
    assert row["positive"] == scored.apart.positives


def test_impossible_requests_to_models_are_refused(world, model, tmp_path):
    prior, _ = train(tmp_path, world, "film-prior", "prior")
    lost = ["tt0-000", "tt2-0017"]
    for call, fact in (
        (lambda: om.predict(model, world.store, ids=lost), "no clip tt2-0017; did you mean tt2-0"),
        (
            lambda: om.predict(prior, world.store),
            "predicts from the film of a clip, not from features",
        ),
        (lambda: om.predict_frames(model, world.store), "does not predict frames"),
    ):
        with pytest.raises(ExperimentError, match=fact):
            call()
    estimator, about = om.load_model(model)
    estimator.coef_ = np.resize([1e308, -1e308], estimator.coef_.shape)
    om.save_model(estimator, tmp_path / "huge", about)
    refusal = pytest.raises(ExperimentError, match=r"huge: predict_proba .* not probabilities")
    with refusal, np.errstate(all="ignore"):
        om.evaluate(tmp_path / "huge", world.store, world.manifest)
    # A folder of models or a run is not a model; the error lists its models.
    inside = tmp_path / "run/models/mlp/HN-vs-S-0"
    shutil.copytree(model, inside)
    for folder, meant in ((model.parent, model), (tmp_path / "run", inside)):
        with pytest.raises(ExperimentError, match=f"{folder} is not a model; did you mean {meant}"):
            om.load_model(folder)


def test_clips_trained_on_are_recognised_under_other_ids(world, model, tmp_path):
    seen = world.clips("HN", "S", folds=range(9))
    unseen = world.clips("EN")[0]
    expected = {
        Item(seen[0], media="elsewhere.mp4"): "yes",
        Item("new-1", film="a", media=f"{seen[1]}.mkv", start=1.0, end=2.0): RENAMED,
        Item("new-2", film="b", media=f"{seen[1]}.avi"): RENAMED,
        Item("new-3", film="a", media=f"{unseen}.mp4", start=1.0, end=2.0): "no",
        Item("new-4", film=seen[0].split("-")[0]): "no",
    }
    store = tmp_path / "renamed.zarr"
    manifest = Manifest("renamed", Items.of(list(expected)))
    write_store(store, manifest, dict.fromkeys(manifest.ids, np.ones(8, np.float32)))
    predictions = om.predict(model, store)
    assert predictions.seen == list(expected.values())
    table = tmp_path / "said.csv"
    result = run_obygaze("models", "predict", model, store, "-o", table, code=0)
    assert "2 clips show parts of files that the model was trained on, under" in result.stderr
    assert [row["seen_in_training"] for row in csv_rows(table)] == predictions.seen


def test_synthetic_data_are_flagged_everywhere(tmp_path):
    recipe = replace(RECIPE, backbone=RECIPE.backbone | {"config": {"synthetic": "random weights"}})
    drawn = make_world(tmp_path / "w", recipe=recipe, synthetic="drawn by a test")
    cautions = [
        "Not a real result: the clips are synthetic (drawn by a test).",
        "Not a real result: the backbone is synthetic (random weights).",
    ]
    model, trained = train(tmp_path, drawn, "logistic")
    commands = (
        ["predict", model, drawn.store, "--json"],
        ["evaluate", model, drawn.store, drawn.manifest],
        ["explain", model, drawn.ids[0], "--store", drawn.store],
    )
    for result in (trained, *(run_obygaze("models", *command, code=0) for command in commands)):
        lines = [line for line in result.stderr.splitlines() if "Not a real" in line]
        assert lines == [f"WARNING: {text}" for text in cautions]
    assert all(f"**{text}**" in (model / "README.md").read_text() for text in cautions)
