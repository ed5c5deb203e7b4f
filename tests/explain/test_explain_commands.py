"""Reasons of clips, and commands from annotators' timelines to moments and their scores."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import obygaze_features as of
import obygaze_models as om
from obygaze_features.common.elan import read_eaf
from obygaze_features.common.tables import read_table
from obygaze_features.errors import AnnotationError, ExperimentError
from obygaze_features.manifests import Item, Items
from obygaze_models.data.tasks import make_task
from obygaze_models.explain.attributions import explain_clips
from obygaze_models.explain.moments import format_times, moment_shares
from obygaze_models.results.frames import run_frames
from obygaze_models.saved import predict as predicting
from obygaze_models.saved.about import Features
from obygaze_models.saved.predict import open_for
from tests.kit.authors import MOBYGAZE, make_authors
from tests.kit.clips import logistic_on, tree_on
from tests.kit.files import refused, write
from tests.kit.floats import close
from tests.kit.predicted import fits_of
from tests.kit.run import RECIPE

NAMES = ["Look", "Body"]
BACKBONE = RECIPE.backbone


def about(array="native", shape=(8,), **described):
    features = Features(
        backbone=dict(BACKBONE),
        preprocessing=dict(RECIPE.preprocessing),
        array=array,
        shape=list(shape),
    )
    task = make_task(of.obygaze_scheme(), positives=["S"], negatives=["EN"])
    return om.About(task=task, features=features, seen={"tt0-003": [None]}, **described)


@pytest.fixture(scope="module")
def saved(world, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    y = (np.array(world.levels) == "S").astype(int)
    marks = (world.features[:, :2] > 0).astype(int)
    bank = om.ConceptBank(C=1.0).fit(world.features, marks, concept_names=NAMES)
    models = {
        "tree": tree_on(bank, max_depth=3),
        "linear": logistic_on(bank),
        "mlp": om.MLPProbe((8,), max_iter=3, random_state=0),
    }
    for name, model in models.items():
        om.save_model(om.Model(model.fit(world.features, y), about()), folder / name)
    films = [clip.split("-")[0] for clip in world.ids]
    prior = om.FilmPrior().fit(world.features, y, groups=films)
    described = about(estimator="film-prior", reads="groups")
    om.save_model(om.Model(prior, described), folder / "prior")
    return folder, models


@pytest.fixture
def explain(saved, world, obygaze):
    """``explain("tree", "tt0-003", ...)``: run the command on a saved model with this name."""

    def explain(model, *arguments, store=world.store, code=None):
        return obygaze(
            "models", "explain", saved[0] / model, *arguments, "--store", store, code=code
        )

    return explain


def test_a_trees_questions_are_listed(explain, saved, world):
    first, _ = json.loads(explain("tree", "tt0-003", "tt0-000", "--json", code=0).stdout)
    model = saved[1]["tree"]
    odds = model.predict_proba(world.features[[3]])[0]
    assert first["explanation"]["label"] == ("EN", "S")[odds.argmax()]
    root, threshold = model.head_.tree_.feature[0], model.head_.tree_.threshold[0]
    value = model.concept_scores(world.features[[3]])[0, root]
    why = first["explanation"]["why"]
    step = why["steps"][0]
    assert (step["concept"], step["above"]) == (NAMES[root], bool(value > threshold))
    assert (step["value"], step["threshold"]) == close((value, threshold))
    assert [*first["explanation"]["probabilities"].values()] == close(odds)
    printed = explain("tree", "tt0-003", code=0).stdout
    assert all(word in printed for word in ("tt0-003", "threshold", "cosine"))


def test_mismatched_clips_and_models_are_refused(explain, world):
    refused(explain("tree", "tt0-003", "tt9-999"), "unknown id 'tt9-999'")
    refused(explain("prior", "tt0-003"), "film")
    with pytest.raises(ExperimentError, match="without `about"):
        open_for(om.About(), world.store)


FRAMES, SIZE = 16, 8
LEVELS = ("bare", "calm: so", "maybe", "tense")
FILM, TITLE = MOBYGAZE[0][0], "Indiana Jones and the Last Crusade"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A run on clips of 30 s, with a lab's own levels on MObyGaze's labels.

    Frames that annotator1 calls tense stand apart in its features.
    """
    folder = tmp_path_factory.mktemp("lab")
    source = make_authors(folder / "authors") / "mobygaze/mobygaze_dataframe.csv"
    own = dict(zip(of.obygaze_scheme().codes, LEVELS, strict=True))
    rows = [
        f"{FILM},{s.annotator},{s.start},{s.end},{own[s.level]},{'|'.join(s.concepts)}"
        for segments in of.Timelines.from_mobygaze(source).by_film[FILM].values()
        for s in segments
    ]
    write(folder / "marks.csv", "film,annotator,start,end,level,concepts", *rows)
    films = write(folder / "films.csv", "film,title", f"{FILM},{TITLE}")
    levels = ", ".join(LEVELS)
    timelines = of.Timelines.from_csv(folder / "marks.csv", films=films, levels=levels)
    timelines.save(folder / "timelines")
    projected = of.project(timelines, 30)
    manifest = projected.grid.with_parts(*projected.label_sets)
    manifest = manifest.with_parts(of.stratified(manifest, folds=3, labels="annotator1"))
    manifest.save(folder / "manifest")
    items = manifest.items
    steps = (np.arange(FRAMES) + 0.5) / FRAMES
    times = items.starts[:, None] + steps * (items.ends - items.starts)[:, None]
    frames = np.random.default_rng(8).standard_normal((*times.shape, SIZE), np.float32)
    for segment in timelines.by_film[FILM]["annotator1"]:
        if segment.level == "tense":
            frames[(segment.start <= times) & (times < segment.end)] += 3
    arrays = {"native": frames.mean(axis=1), "frames": frames, "frame_time": times}
    arrays["loudness"] = -20 - 9 * np.cos(times).astype("f4")  # as a store of sound has it
    for name, values in arrays.items():
        np.save(folder / f"{name}.npy", values)
    paths = {name: folder / f"{name}.npy" for name in arrays}
    of.import_features(paths, manifest, folder / "s.zarr", ids=manifest.ids)
    experiment = om.Experiment(
        name="moments", manifest=str(folder / "manifest"), store=str(folder / "s.zarr"),
        labels="annotator1", protocol="split",
        split="leak-free", positives=("tense",), train_negatives=("bare", "calm: so"),
        estimators=("logistic", {"name": "frame-mil", "max_iter": 15}),
    )  # fmt: skip
    run = om.run_experiment(experiment, folder / "run")
    store = of.open_store(folder / "s.zarr")
    frames = om.frame_table(run_frames(run, store), store.items)
    moments = om.find_moments(frames)
    return SimpleNamespace(
        folder=folder, timelines=timelines, store=folder / "s.zarr", run=run, moments=moments
    )


def test_planted_moments_are_found(lab):
    frames = om.frame_table(run_frames(lab.run, lab.store), of.open_store(lab.store).items)
    middles = (frames["start"] + frames["end"]) / 2
    areas = {}
    for annotator, segments in lab.timelines.by_film[FILM].items():
        marked = [segment for segment in segments if segment.level == "tense"]
        inside = [any(s.start <= time < s.end for s in marked) for time in middles]
        areas[annotator] = roc_auc_score(inside, frames["probability"])
    assert areas["annotator1"] > 0.95
    # The other annotator marked different moments, which are not in the features.
    assert areas["annotator2"] < areas["annotator1"]


def test_the_commands_are_the_python_calls(lab, obygaze, tmp_path):
    moments = lab.moments
    named = {name: tmp_path / f"{name}.csv" for name in ("moments", "frames")}
    result = obygaze(
        "models", "moments", lab.folder / "run", lab.store, "-o", named["moments"],
        "--frames", named["frames"], "--elan", tmp_path / "elan", code=0,
    )  # fmt: skip
    frames = om.frame_table(run_frames(lab.run, lab.store), of.open_store(lab.store).items)
    assert frames["threshold"].nunique() == 3, "a threshold a fold"
    assert named["moments"].read_text() == format_times(moments)
    assert named["frames"].read_text() == format_times(frames)
    [row] = [line for line in result.output.splitlines() if line.startswith(FILM)]
    [shares] = moment_shares(frames, moments).round(3).to_dict("records")
    columns = ("covered", "above", "threshold")
    numbers = [f"{shares[name]:.3f}" for name in columns]
    assert row.split() == [FILM, str(len(moments)), *numbers]
    middles = (frames["start"] + frames["end"]) / 2
    np.testing.assert_allclose(frames["loudness"], -20 - 9 * np.cos(middles), atol=0.1)
    [path] = (tmp_path / "elan").iterdir()
    assert path.name == f"{FILM}.eaf"
    document, _ = read_eaf(path, AnnotationError)
    [tier] = document.tiers
    times = [(note.start, note.end) for note in tier.annotations]
    assert times == [(round(1000 * m.start), round(1000 * m.end)) for m in moments.itertuples()]
    words = ("models", "moments", lab.folder / "run", lab.store, "--threshold", 1)
    both = obygaze(*words, "-o", tmp_path / "m.csv", "--elan", tmp_path / "none")
    refused(both, "which ELAN needs")
    assert not (tmp_path / "m.csv").exists()
    obygaze(*words, "-o", tmp_path / "m.csv", code=0)
    assert not len(read_table(tmp_path / "m.csv"))


def test_moments_in_training_clips_are_marked(lab, obygaze, tmp_path):
    mil, part = lab.run.saved[-1], tmp_path / "part.zarr"
    [ids] = [f.ids[:2] for f in fits_of(lab.run) if (f.model, f.fit) == (mil["model"], 0)][:1]
    assert obygaze("stores", "subset", lab.store, "--ids", ",".join(ids), "-o", part).exit_code == 0
    for model, seen in ((lab.folder / "run", "film"), (mil["folder"], "clip")):
        output = tmp_path / f"{seen}.csv"
        obygaze("models", "moments", model, part, "-o", output, code=0)
        assert {*read_table(output)["seen_in_training"]} == {seen}


def import_ones(store, manifest, *, frames, size):
    arrays = {"native": (1, size), "frames": (1, frames, size), "frame_time": (1, frames)}
    files = {}
    for name, shape in arrays.items():
        files[name] = store.with_name(f"{name}.npy")
        np.save(files[name], np.ones(shape))
    of.import_features(files, manifest, store, ids=manifest.ids)


def test_a_whole_film_has_more_frames_than_clips(lab, tmp_path):
    film, store = of.Manifest("m", Items.of([Item("c")])), tmp_path / "film.zarr"
    import_ones(store, film, frames=9 * FRAMES, size=SIZE)
    predicted = om.predict_frames(lab.run.saved[-1]["folder"], store)
    assert predicted.probabilities.shape == (1, 9 * FRAMES)
    assert np.ptp(predicted.probabilities) < 1e-6  # equal frames


def test_bad_input_is_one_line(lab, obygaze, tmp_path):
    mil, vectors = (row["folder"] for row in lab.run.saved[::-3])
    clip, others = of.Manifest("m", Items.of([Item("c")])), tmp_path / "o.zarr"
    import_ones(others, clip, frames=FRAMES, size=2 * SIZE)
    output = ("-o", tmp_path / "m.csv")
    moments = ("moments", vectors, lab.store, *output)
    for arguments, fact, code in (
        (moments, "does not predict frames", 1),
        (("moments", mil, others, *output), "shape of frames", 1),
        (("moments", lab.folder / "run", others, *output), "obygaze models train", 1),
        ((*moments, "--frames", output[1]), "-o and --frames must be different files", 2),
    ):
        refused(obygaze("models", *arguments), fact, code=code)


@pytest.mark.parametrize("model", ["tree", "linear", "mlp"])
def test_clips_are_predicted_in_blocks(model, saved, world, monkeypatch):
    monkeypatch.setattr(predicting, "BLOCK_VALUES", 3 * world.features.shape[1])
    predictions = om.predict(saved[0] / model, world.store)
    assert predictions.table["id"].tolist() == world.ids
    expected = saved[1][model].predict_proba(world.features)
    np.testing.assert_allclose(predictions.values, expected, rtol=0, atol=1e-6)


def test_the_most_similar_clips_are_listed(saved, world):
    [clip] = explain_clips(saved[0] / "mlp", world.store, world.ids[5:6])
    unit = world.features / np.linalg.norm(world.features, axis=1)[:, None]
    cosines = unit @ unit[5]
    cosines[5] = -1
    nearest = np.argsort(-cosines)[:5]
    assert [match["id"] for match in clip["nearest"]] == [world.ids[row] for row in nearest]
    listed = [match["cosine"] for match in clip["nearest"]]
    np.testing.assert_allclose(listed, cosines[nearest], atol=1e-5)
