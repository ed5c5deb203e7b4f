"""`load_dataset`, and the splitters with scikit-learn's own tools."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import msgspec
import numpy as np
import pytest
import sklearn
from sklearn.dummy import DummyClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate

import obygaze_models as om
from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Manifest, Run, RunSet, Split
from obygaze_features.store import open_store
from obygaze_models.experiments.plan import make_plan
from obygaze_models.experiments.summary import describe_balance
from obygaze_models.model_header import read_about
from tests.world import make_world, write_store


@pytest.fixture(scope="module")
def marked(tmp_path_factory):
    return make_world(tmp_path_factory.mktemp("marked"), marked=True)


@pytest.fixture(scope="module")
def data(marked):
    return om.load_dataset(
        str(marked.manifest), str(marked.store), positives=["Sure"], negatives=["EN", "HN"],
        split="ten",
    )  # fmt: skip


def test_a_dataset_has_the_clips_of_the_task(marked, data):
    row_of = {clip: row for row, clip in enumerate(marked.ids)}
    rows = [row_of[clip] for clip in data.ids]
    levels = [marked.levels[row] for row in rows]
    assert set(levels) == {"EN", "HN", "S"}
    assert data.levels == levels
    assert data.y.tolist() == [int(level == "S") for level in levels]
    assert data.classes == ("EN+HN", "S")
    assert data.groups.tolist() == [clip.split("-")[0] for clip in data.ids]
    assert data.folds.tolist() == [marked.folds[row] for row in rows]
    np.testing.assert_array_equal(data.X, marked.features[rows])
    assert data.concepts.shape == (len(data), len(data.concept_names))
    assert len(repr(data)) < 200
    assert "<table>" in data._repr_html_()


def test_other_tasks(marked):
    def load(**task):
        return om.load_dataset(marked.manifest, marked.store, **task)

    assert load(levels=["EN", "HN", "S"]).classes == ("EN", "HN", "S")
    everything = load(frames=True)
    assert everything.y is None
    assert everything.frames.shape[0] == len(everything) == 200
    name = everything.concept_names[0]
    one = load(concept=name, negatives="b")
    assert one.classes == (f"no {name}", name)
    half = one.select(one.y == 1)
    assert set(half.y.tolist()) == {1}
    assert half.ids == [clip for clip, y in zip(one.ids, one.y, strict=True) if y]
    with pytest.raises(ExperimentError, match="negatives is missing"):
        load(positives=["S"])
    with pytest.raises(ExperimentError, match="did you mean Sure"):
        load(positives=["surely"], negatives=["EN"])
    with pytest.raises(ExperimentError, match="one task at a time"):
        load(levels=["EN", "HN", "S"], concept=name)


def test_leave_film_out_is_leave_one_group_out(data):
    """Each film tests once, and no clip of it trains."""
    splitter = om.LeaveFilmOut()
    splits = list(splitter.split(data.X, data.y, data.groups))
    assert splitter.get_n_splits(data.X, data.y, data.groups) == len(splits) == 4
    for train, test in splits:
        [film] = set(data.groups[test])
        assert sorted([*train, *test]) == list(range(len(data)))
        assert film not in data.groups[train]
    scores = cross_val_score(
        LogisticRegression(), data.X, data.y, groups=data.groups, cv=om.LeaveFilmOut()
    )
    assert len(scores) == 4
    assert scores.mean() > 0.8


@pytest.mark.parametrize(
    ("splitter", "splits"),
    [(om.LeakFree, 9), (om.ManifestSplit, 10), (om.PaperSplit, 8), (om.OfficialSplit, 1)],
)
def test_splitters_of_fold_columns(data, splitter, splits):
    for cv in (splitter(data.folds), splitter()):
        parts = list(cv.split(data.X, data.y))
        assert cv.get_n_splits() == cv.get_n_splits(data.X, data.y) == len(parts) == splits
        for train, test in parts:
            assert not set(train.tolist()) & set(test.tolist())
            assert set(data.y[train]) == set(data.y[test]) == {0, 1}
    search = GridSearchCV(LogisticRegression(), {"C": [0.1, 1]}, cv=splitter(data.folds))
    assert search.fit(data.X, data.y).n_splits_ == splits
    texts = np.array(data.classes)[data.y]
    result = cross_validate(DummyClassifier(), data.X, texts, cv=splitter(data.folds))
    assert len(result["test_score"]) == splits


def test_scikit_learn_trains_on_the_rows_of_the_experiment(data, experiment, marked):
    """`split` of the leak-free protocol has the experiment's training and test rows."""
    manifest = Manifest.load(marked.manifest)
    changed = replace(
        experiment, manifest=marked.manifest, store=marked.store, train_negatives=("EN", "HN"),
        test_negatives=(),
    )  # fmt: skip
    [problem] = changed.problems(manifest.scheme)
    plan = make_plan(changed, manifest, [problem])
    clips, _ = plan.join(changed, manifest, open_store(marked.store), problem.train.levels)
    folds = plan.folds(clips, problem, seed=0)
    for fold, (train, test) in zip(
        folds, om.LeakFree(data.folds).split(data.X, data.y), strict=True
    ):
        assert [clips.ids[row] for row in fold.train] == [data.ids[row] for row in train]
        [tested] = fold.tests.values()
        assert [clips.ids[row] for row in tested] == [data.ids[row] for row in test]


def test_balance_can_be_switched_off(data):
    for splitter in (om.LeakFree, om.ManifestSplit):
        (train, _), *_ = splitter(data.folds).split(data.X, data.y)
        (every, _), *_ = splitter(data.folds, balance="none").split(data.X, data.y)
        smaller, larger = sorted(np.bincount(data.y[every]).tolist())
        assert np.bincount(data.y[train]).tolist() == [smaller, smaller]
        assert larger > smaller
    with pytest.raises(ExperimentError, match="unknown balance 'nome'; did you mean none"):
        list(om.LeakFree(data.folds, balance="nome").split(data.X, data.y))


def test_what_a_splitter_lacks_is_named(data):
    with pytest.raises(ValueError, match=r"needs groups, .* data\.groups"):
        next(om.LeaveFilmOut().split(data.X, data.y))
    with pytest.raises(ValueError, match="LeakFree needs y"):
        next(om.LeakFree().split(data.X))
    with pytest.raises(ExperimentError, match=r"folds has 3 entries, and there are \d+ clips"):
        next(om.LeakFree([0, 1, 2]).split(data.X, data.y))


def released(ids, tested):
    return om.Released(ids, RunSet("toy", [Run("0", ids[:4], ids[4:6])] * 3), tested)


@pytest.mark.parametrize("kind", ["LeakFree", "ManifestSplit", "PaperSplit", "Released"])
def test_only_leave_film_out_goes_by_groups(data, kind):
    """The others warn of groups, as KFold does, and do not ask for them under routing."""
    cv = getattr(om, kind)(data.folds) if kind != "Released" else None
    cv = cv or released(data.ids, {"test": frozenset(data.ids[6:])})
    with pytest.warns(UserWarning, match=f"{kind} ignores groups"):
        cross_val_score(DummyClassifier(), data.X, data.y, groups=data.groups, cv=cv)
    with sklearn.config_context(enable_metadata_routing=True):
        films = {"groups": data.groups}
        scores = cross_val_score(
            DummyClassifier(), data.X, data.y, params=films, cv=om.LeaveFilmOut()
        )
        assert len(scores) == 4
        with pytest.raises(TypeError, match="not routed to any object"):
            cross_val_score(DummyClassifier(), data.X, data.y, params=films, cv=cv)


def test_a_fold_without_clips_tests_nothing(data):
    folds = np.where(data.folds == 4, -1, data.folds)
    cv = om.ManifestSplit(folds)
    assert cv.get_n_splits() == 9
    tested = [set(folds[test]) for _, test in cv.split(data.X, data.y)]
    assert tested == [{fold} for fold in range(10) if fold != 4]
    with pytest.raises(ExperimentError, match="1 fold; to train and test takes two"):
        om.ManifestSplit([0] * len(data)).get_n_splits()
    with pytest.raises(ExperimentError, match="2 folds; to train, validate and test takes three"):
        om.LeakFree([0, 1] * 5).get_n_splits()


def test_a_random_state_is_a_number_or_numpys(data):
    def rows(splitter, random_state):
        cv = splitter(balance="undersample", random_state=random_state)
        return [train.tolist() for train, _ in cv.split(data.X, data.y, groups_of[splitter])]

    groups_of = {om.LeakFree: None, om.ManifestSplit: None, om.LeaveFilmOut: data.groups}
    for splitter in groups_of:
        same = [rows(splitter, np.random.RandomState(3)) for _ in range(2)]
        assert same[0] == same[1]
        assert same[0] != rows(splitter, np.random.RandomState(4))
        assert rows(splitter, np.int64(3)) == rows(splitter, 3)
        assert rows(splitter, None) != rows(splitter, None)
        with pytest.raises(ValueError, match="cannot be used to seed"):
            rows(splitter, "three")


@pytest.mark.parametrize("cv", [om.LeakFree(), om.ManifestSplit(), om.LeaveFilmOut()])
def test_what_scikit_learn_refuses_splitters_refuse(data, cv):
    groups = data.groups if isinstance(cv, om.LeaveFilmOut) else None
    for y, words in (
        (np.linspace(0, 1, len(data)), "Unknown label type: continuous"),
        (np.eye(2, dtype=int)[data.y], "1d array"),
        (data.y[:-1], "inconsistent numbers of samples"),
    ):
        with pytest.raises(ValueError, match=words):
            next(cv.split(data.X, y, groups))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        next(om.LeaveFilmOut().split(data.X, data.y, data.groups[:-1]))


def test_the_released_lists(coded):
    manifest = Manifest.load(coded.manifest)
    clips = om.load_dataset(
        manifest, coded.store, positives=["S"], negatives=["HN"], labels="released"
    )
    cv = om.Released.from_manifest(manifest, clips.ids, "02_HN_S")
    splits = list(cv.split(clips.X, clips.y))
    assert len(splits) == 8
    test = set(manifest.split("02_HN_S").fold(9))
    assert {clips.ids[row] for row in splits[0][1]} <= test
    assert cv.get_n_splits() == 8


def test_released_lists_that_do_not_fit_are_one_line(data):
    tested = frozenset(data.ids[6:])
    named = released(data.ids, {"EN vs S": tested})
    assert [len(test) for _, test in named.split(data.X, data.y)] == [len(data) - 6] * 3
    with pytest.raises(ExperimentError, match=rf"ids has {len(data) - 1} entries, .*data\.ids"):
        next(released(data.ids[1:], {"test": tested}).split(data.X, data.y))
    with pytest.raises(ExperimentError, match=r"one test set \(got EN vs S, HN vs S\)"):
        next(released(data.ids, {"EN vs S": tested, "HN vs S": tested}).split(data.X, data.y))


@pytest.fixture(scope="module")
def second_store(marked, tmp_path_factory):
    """Other features of the same clips, but for three; in another order."""
    manifest = Manifest.load(marked.manifest)
    features = dict(zip(marked.ids, 10 * marked.features[:, ::-1], strict=True))
    path = tmp_path_factory.mktemp("second") / "second.zarr"
    write_store(path, manifest.select(ids=manifest.ids[3:]), features)
    return path


def test_features_of_several_stores_are_concatenated(marked, second_store):
    task = {"positives": ["S"], "negatives": ["EN", "HN"]}
    one = om.load_dataset(marked.manifest, marked.store, **task)
    two = om.load_dataset(marked.manifest, [marked.store, second_store], **task)
    width = one.X.shape[1]
    rows = [one.ids.index(clip) for clip in two.ids]
    assert two.ids == [clip for clip in one.ids if clip not in marked.ids[:3]]
    np.testing.assert_array_equal(two.X[:, :width], one.X[rows])
    np.testing.assert_array_equal(two.X[:, width:], 10 * one.X[rows][:, ::-1])


def test_an_experiment_on_several_stores(marked, second_store, obygaze, tmp_path):
    (tmp_path / "two.toml").write_text(
        f"""
name = "Two"
manifest = "{marked.manifest}"
stores = ["{marked.store}", "{second_store}"]
split = "ten"
positives = ["S"]
train_negatives = ["HN"]
estimators = ["logistic"]
"""
    )
    run = om.run_experiment(tmp_path / "two.toml", tmp_path / "run")
    assert run.record.experiment["store"] == [marked.store.as_posix(), second_store.as_posix()]
    assert run.record.store.name == "toy + toy"
    assert len(run.record.join.without_features) <= 3
    model = run.models()[0]["folder"]
    _, about = om.load_model(model)
    assert about["features"]["shape"] == [16]
    assert about == read_about(model)
    stores = [marked.store, second_store]
    predictions = om.predict(model, stores)
    assert predictions.ids == [clip for clip in marked.ids if clip not in marked.ids[:3]]
    scored = om.evaluate(model, stores, marked.manifest)
    told = obygaze("models", "evaluate", model, *stores, marked.manifest, "--json")
    assert json.loads(told.stdout) == asdict(scored)
    with pytest.raises(ExperimentError, match="the model is for tiny \\+ tiny"):
        om.predict(model, marked.store)


@pytest.mark.parametrize(
    ("change", "balanced"),
    [
        ({"protocol": "leak-free"}, True),
        ({"protocol": "leak-free", "balance": "none"}, False),
        ({"protocol": "split", "balance": "none"}, False),
        ({"protocol": "leave-film-out", "split": None}, False),
        ({"protocol": "leave-film-out", "split": None, "balance": "undersample"}, True),
        ({"balance": "weights"}, False),
        ({}, True),
    ],
)
def test_an_experiment_balances_as_it_says(experiment, tmp_path, change, balanced):
    changed = replace(
        experiment,
        train_negatives=("EN", "HN"),
        test_negatives=(),
        estimators=("majority",),
        **change,
    )
    record = om.run_experiment(changed, tmp_path / "run").record
    protocol = change.get("protocol", "leak-free")
    by_default = "none" if protocol == "leave-film-out" else "undersample"
    assert (record.protocol, record.balance) == (protocol, change.get("balance", by_default))
    for fit in record.fits:
        assert (len(set(fit.train.classes.values())) == 1) == balanced
        if protocol != "leave-film-out":  # 50 Sure, 100 others, in folds of the same shares
            assert fit.drawn_from == fit.train.clips * 3 // 2 if balanced else fit.train.clips
    said = describe_balance(record)
    if protocol == "leak-free":
        assert said.startswith("80 of 120 training clips a fit" if balanced else "120 training")


@pytest.mark.gate
def test_weights_are_those_that_scikit_learn_balances_by(experiment, tmp_path):
    """The models are those of unbalanced clips whose estimators are told to weigh classes."""
    negatives = {"train_negatives": ("EN", "HN"), "test_negatives": ()}
    tree = {"name": "sklearn.tree:DecisionTreeClassifier", "as": "tree", "max_depth": 2}
    names = "mlp", "logistic", tree, "knn", "majority"
    told = tuple(
        {**(entry if isinstance(entry, dict) else {"name": entry}), "class_weight": "balanced"}
        for entry in names[:3]
    )
    weighted = om.run_experiment(
        replace(experiment, balance="weights", estimators=names, **negatives), tmp_path / "w"
    )
    asked = om.run_experiment(
        replace(experiment, balance="none", estimators=(*told, "knn", "majority"), **negatives),
        tmp_path / "a",
    )
    for ours, theirs in zip(weighted.predictions(), asked.predictions(), strict=True):
        assert (ours.model, ours.ids) == (theirs.model, theirs.ids)
        assert ours.probabilities.tolist() == theirs.probabilities.tolist()
    plain = om.run_experiment(
        replace(experiment, balance="none", estimators=names, **negatives), tmp_path / "n"
    )
    changed = {
        ours.model
        for ours, theirs in zip(weighted.predictions(), plain.predictions(), strict=True)
        if ours.probabilities.tolist() != theirs.probabilities.tolist()
    }
    assert changed == {"mlp", "logistic", "tree"}
    assert [warning.subject for warning in weighted.warnings if warning.code == "balance"] == [
        "knn"
    ]


@pytest.mark.parametrize(
    ("fold_of_film", "protocol"),
    [
        ({"tt0": 0, "tt1": 1, "tt2": 2, "tt3": 3}, "split"),
        ({"tt0": 2, "tt1": 0, "tt2": 1, "tt3": 3}, "split"),
        ({"tt0": 0, "tt1": 1, "tt2": 2, "tt3": 2}, "leak-free"),
    ],
)
def test_where_each_fold_is_a_film_each_film_tests(
    experiment, world, tmp_path, fold_of_film, protocol
):
    folds = [fold_of_film[clip.split("-")[0]] for clip in world.ids]
    manifest = Manifest.load(world.manifest).with_parts(splits=[Split("mine", world.ids, folds)])
    manifest.save(tmp_path / "manifest")
    changed = replace(
        experiment, manifest=tmp_path / "manifest", split="mine", estimators=("majority",)
    )
    run = om.run_experiment(changed, tmp_path / "run")
    assert (run.record.protocol, run.record.experiment["protocol"]) == (protocol, protocol)
    tested = {clip.split("-")[0] for fit in run.predictions() for clip in fit.ids}
    last = {film for film, fold in fold_of_film.items() if fold == max(folds)}
    assert tested == (set(fold_of_film) if protocol == "split" else last)
    explicit = om.run_experiment(replace(changed, protocol="leak-free"), tmp_path / "last")
    assert {c.split("-")[0] for fit in explicit.predictions() for c in fit.ids} == last


def test_films_with_few_clips_of_a_class_are_named(experiment, world, tmp_path):
    """Leave-film-out tests films with ten clips of each class; the run names the others."""
    manifest = Manifest.load(world.manifest)
    labels = manifest.labels("all")
    levels = list(labels.levels)
    sure = [row for row, clip in enumerate(labels.ids) if clip[:3] == "tt1" and levels[row] == "S"]
    for row in sure[4:]:
        levels[row] = "NS"
    manifest = manifest.with_parts(labels=[replace(labels, name="few", levels=levels)])
    manifest.save(tmp_path / "manifest")
    run = om.run_experiment(
        replace(
            experiment, manifest=tmp_path / "manifest", labels="few", split=None,
            protocol="leave-film-out", estimators=("majority",),
        ),
        tmp_path / "run",
    )  # fmt: skip
    films = run.record.films
    assert list(films.titles) == ["tt0", "tt2", "tt3"]
    assert films.untested == {"tt1": "4 clips of S; 10 are needed to test"}
    assert films.note == "tests 3 of 4 films: tt0, tt2, tt3"
    several = msgspec.structs.replace(films, tested=4, titles=films.titles | {"tt4": "tt4"})
    assert several.note == "tests 4 of 5 films, not tt1 (4 clips of S; 10 are needed to test)"
    assert {clip.split("-")[0] for fit in run.predictions() for clip in fit.ids} == set(
        films.titles
    )


def test_a_protocol_that_fixes_its_clips_is_not_balanced(experiment):
    with pytest.raises(ExperimentError, match="the protocol paper fixes the training clips"):
        replace(experiment, protocol="paper", balance="none")
    with pytest.raises(ExperimentError, match="unknown balance 'wieghts'"):
        replace(experiment, balance="wieghts")


def test_a_long_run_without_a_terminal_says_how_long_it_takes(experiment, tmp_path, monkeypatch):
    from obygaze_models.experiments import run as module

    monkeypatch.setattr(module, "LINE_EVERY_S", 0.0)
    lines = []
    om.run_experiment(
        replace(experiment, estimators=("majority",)), tmp_path / "r", log=lines.append
    )
    assert len(lines) == 8
    assert lines[0].startswith("1 of 9 fits, about ")
