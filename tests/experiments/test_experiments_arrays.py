"""Arrays and objects of scikit-learn in a run, and our splitters in scikit-learn."""

import re

import numpy as np
import pandas as pd
import pytest
import sklearn
from joblib.externals.loky import get_reusable_executor
from sklearn.cluster import KMeans
from sklearn.compose import ColumnTransformer
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.metrics import f1_score
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    LeaveOneGroupOut,
    StratifiedGroupKFold,
    cross_val_predict,
    cross_val_score,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import obygaze_models as om
from obygaze_features.errors import ExperimentError, ObygazeError
from tests.kit.floats import close

FILMS = [f"film {number}" for number in range(6)]
SIZE = 40
MODELS = {
    "pipeline": make_pipeline(StandardScaler(), LogisticRegression(C=0.5)),
    "network": om.MLPProbe(max_iter=5),
    "forest": RandomForestClassifier(5),
    "prior": DummyClassifier(),
}


@pytest.fixture(scope="module")
def arrays():
    """Features, two classes and films; a look of each film, and a signal."""
    chance = np.random.default_rng(5)
    films = np.repeat(FILMS, SIZE)
    y = np.tile(["calm", "tense", "calm", "calm", "tense"], len(films) // 5)
    noise = chance.normal(size=(len(films), 6))
    looks = np.repeat(chance.normal(size=(6, 6)), SIZE, axis=0)
    signal = (y == "tense")[:, None]
    return noise + signal + looks, y, films


@pytest.fixture(scope="module")
def run(arrays):
    return om.cross_validate(MODELS, om.dataset(*arrays))


def predicted(run, model):
    """Return the positive class's probabilities in the order of the rows."""
    table = run.predictions[run.predictions["model"] == model].set_index("id")["probability"]
    return table.sort_index().to_numpy()


@pytest.mark.parametrize("cv", [StratifiedGroupKFold(3), KFold(4), 5], ids=str)
def test_splitters_of_scikit_learn_are_taken(arrays, cv):
    X, y, films = arrays
    keeps_films = isinstance(cv, StratifiedGroupKFold)
    models = {"m": MODELS["pipeline"], "bank": om.ConceptBottleneck()}
    run = om.cross_validate(
        models, om.dataset(*arrays, concepts=X[:, :1] > 0, concept_names="a"), cv=cv
    )
    groups = films if keeps_films else None
    expected = cross_val_predict(
        MODELS["pipeline"], X, y, groups=groups, cv=cv, method="predict_proba"
    )
    np.testing.assert_array_equal(predicted(run, "m"), expected[:, 1])
    assert (run.fits["validated"] == 0).all()
    assert (run.is_mixed, run.header.protocol) == (not keeps_films, str(cv))


def test_our_splitters_work_in_scikit_learn(arrays):
    X, y, films = arrays

    def score(cv, groups=films):
        return cross_val_score(MODELS["pipeline"], X, y, groups=groups, cv=cv).tolist()

    assert score(om.LeaveFilmOut(balance="none")) == score(LeaveOneGroupOut())
    search = GridSearchCV(LogisticRegression(), {"C": [0.01, 1.0]}, cv=om.LeaveFilmOut())
    with sklearn.config_context(enable_metadata_routing=True):
        assert search.fit(X, y, groups=films).n_splits_ == len(FILMS)
    codes = np.unique(films, return_inverse=True)[1]
    assert len(score(om.EveryFold(), codes)) == len(FILMS)


def test_a_table_keeps_its_names_and_ids(arrays):
    X, y, films = arrays
    names = ["red", "green", "blue", "loud", "fast", "dark"]
    ids = [f"clip-{row:03}" for row in range(len(X))]
    table = pd.DataFrame(X, columns=names, index=ids)
    by_name = ColumnTransformer([("scaled", StandardScaler(), ["loud", "red"])])
    model = make_pipeline(by_name, LogisticRegression())
    data = om.dataset(table, pd.Series(y, ids), pd.Series(films, ids))
    assert (data.ids, data.columns) == (ids, tuple(names))
    cv = om.LeaveFilmOut(balance="none")
    run = om.cross_validate({"named": model}, data, cv=cv)
    expected = cross_val_predict(
        model, table, y, groups=films, cv=LeaveOneGroupOut(), method="predict_proba"
    )
    np.testing.assert_array_equal(predicted(run, "named"), expected[:, 1])


def same(first, second):
    for name in ("clips", "fits", "predictions", "reasons"):
        tables = [getattr(run, name) for run in (first, second)]
        tables = [table.drop(columns=["folder", "not_saved"], errors="ignore") for table in tables]
        pd.testing.assert_frame_equal(*tables, check_exact=True)
    pd.testing.assert_frame_equal(first.scores(), second.scores(), check_exact=True)
    return True


def test_a_saved_run_is_the_same_and_names_what_it_lacks(arrays, run, tmp_path):
    saved = run.save(tmp_path / "run")
    assert repr(run) == "Run('in memory', calm vs tense: pipeline, network, forest, prior)"
    assert same(run, saved)
    assert same(run, om.load_run(tmp_path / "run"))
    [warning] = [warning for warning in saved.warnings if warning.code == "not-saved"]
    assert warning.subject == "forest"
    assert {row["model"] for row in saved.saved} == {"pipeline", "network", "prior"}
    row = next(row for row in saved.saved if row["model"] == "pipeline")
    rows = arrays[2] == row["name"].removeprefix("test ")
    model = om.load_model(row["folder"]).estimator
    shares = model.predict_proba(arrays[0][rows])[:, 1]
    assert shares.tolist() == predicted(saved, "pipeline")[rows].tolist()
    with pytest.raises(ExperimentError, match="on disk already"):
        saved.save(tmp_path / "again")
    kept = om.cross_validate(MODELS, om.dataset(*arrays), output=tmp_path / "kept")
    assert same(saved, kept)
    assert [w for w in kept.warnings if w.code == "not-saved"] == [warning]


def test_processes_change_nothing(arrays, run):
    get_reusable_executor().shutdown()  # those of an earlier test are in a lost folder
    assert same(run, om.cross_validate(MODELS, om.dataset(*arrays), n_jobs=2))


def test_numbers_and_three_classes_are_predicted_as_in_scikit_learn(arrays):
    X, _, films = arrays
    y = X @ np.arange(6.0)
    split = {"groups": films, "cv": GroupKFold(3)}
    run = om.cross_validate(Ridge(), om.dataset(X, y, films), cv=split["cv"])
    values = run.predictions.set_index("id").sort_index()["value"]
    assert values.tolist() == cross_val_predict(Ridge(), X, y, **split).tolist()
    y = np.digitize(y, [-3, 3])
    run = om.cross_validate(LogisticRegression(), om.dataset(X, y, films), cv=split["cv"])
    table = run.predictions.set_index("id").sort_index().filter(like="probability")
    expected = cross_val_predict(LogisticRegression(), X, y, **split, method="predict_proba")
    np.testing.assert_array_equal(table.to_numpy(), expected)


def test_all_models_get_the_folds_that_are_drawn(arrays):
    """Also if the splitter draws others each time, or can be read only once."""
    X, y, films = arrays
    cvs = KFold(3, shuffle=True), om.LeaveFilmOut(random_state=None)
    for cv in (*cvs, LeaveOneGroupOut().split(X, y, films)):
        models = dict.fromkeys("ab", MODELS["pipeline"])
        run = om.cross_validate(models, om.dataset(*arrays), cv=cv)
        first, second = (predicted(run, model).tolist() for model in models)
        assert len(first) == len(X)
        assert first == second


def test_one_reason_for_all_fits_is_raised(arrays):
    X, y, films = arrays
    data = om.dataset(np.where(X > 0, X, np.nan), y, films)
    with pytest.raises(ExperimentError, match=r"^linear .* cannot be trained: .*contains NaN"):
        om.cross_validate({"linear": LogisticRegression(), "prior": DummyClassifier()}, data)
    with pytest.raises(ExperimentError, match="KMeans is neither a regressor nor a classifier"):
        om.cross_validate(KMeans(), data)


FRAME = pd.DataFrame(np.eye(240))


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        ({"y": ["calm", "tense"]}, "y has 2 rows, but X has 240"),
        ({"X": np.full((240, 6), np.inf)}, "infinity"),
        ({"y": ["calm"] * 240}, "negative one .got calm"),
        ({"y": ["calm", None] * 120}, "y is empty in row 1"),
        ({"groups": [None] * 240}, "groups is empty in row 0"),
        ({"y": FRAME[0], "concepts": FRAME[::-1]}, "index"),
        ({"concepts": -FRAME}, "True or False"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(arrays, change, fact):
    X, y, films = arrays
    with pytest.raises((ValueError, ObygazeError), match=fact):
        om.dataset(**{"X": X, "y": y, "groups": films} | change)


def test_a_page_without_films_says_so(arrays, tmp_path):
    run = om.cross_validate(DummyClassifier(), om.dataset(*arrays[:2]), cv=5)
    assert "It takes films to say" in om.report(run, tmp_path / "page.html").read_text()


def test_lists_and_nullable_columns_are_arrays(arrays):
    X, y, films = arrays
    data = om.dataset(X.tolist(), pd.array(y == "tense", dtype="boolean"), np.arange(240) // 20)
    assert data.folds[-1] == 3  # after the groups 0, 1 and 10
    assert data.classes == ("False", "True")
    days = np.where(y == "tense", "2020-02-01", "2020-01-01").astype("datetime64[D]")
    assert om.dataset(X, days, films).y.tolist() == data.y.tolist()
    ordered = pd.Categorical(y, ["tense", "calm", "never"])
    assert om.dataset(X, ordered, films).classes == ("tense", "calm")


def test_only_clips_of_the_same_film_are_compared(arrays, run):
    X, y, films = arrays
    other = om.cross_validate(MODELS["prior"], om.dataset(X, y, np.roll(films, 3)))
    last = om.compare([run, other]).table.iloc[-1]
    assert (last["model"], last["clips"]) == ("run 2: DummyClassifier", 222)


def test_each_estimator_decides_about_missing_values(arrays, tmp_path):
    """A tree sends them left or right; saved, it does the same."""
    X, y, films = arrays
    X = np.hstack([X, X, X])
    X[np.random.default_rng(1).random(X.shape) < 0.1] = np.nan
    data = om.dataset(X, y, films)
    models = {
        "imputed": make_pipeline(SimpleImputer(), LogisticRegression()),
        "tree": DecisionTreeClassifier(max_depth=5),
        "boosted": HistGradientBoostingClassifier(max_iter=5),
    }
    run = om.cross_validate(models, data)
    saved = om.cross_validate(models, data, output=tmp_path / "run")
    assert same(run, saved)
    assert {row["model"] for row in saved.saved} == {"tree"}


def test_validation_clips_choose_the_threshold(arrays, tmp_path):
    X, y, films = arrays
    tense = y == "tense"
    # The best one of the search is saved.
    learner = om.Learner(
        GridSearchCV(LogisticRegression(), {"C": [1.0]}, cv=2), threshold="validation"
    )
    run = om.cross_validate(
        learner, om.dataset(*arrays), cv=om.LeaveFilmOut(balance="none"), output=tmp_path / "run"
    )
    for row in run.saved:
        tested, held = re.findall(r"film \d", row["name"])
        train = ~np.isin(films, [tested, held])
        model = LogisticRegression().fit(X[train], y[train])

        validating = films == held
        p = model.predict_proba(X[validating])[:, 1]
        f1_of = {cut: f1_score(tense[validating], p > cut) for cut in (0, row["cut"], *p)}
        assert f1_of[row["cut"]] == max(f1_of.values())
        assert om.load_model(row["folder"]).about.cut == row["cut"]
        assert row["validated"] == SIZE

        own = run.predictions.loc[run.predictions["fit"] == row["fit"], "probability"]
        p = model.predict_proba(X[films == tested])[:, 1]
        odds = p / (1 - p) * (1 - row["cut"]) / row["cut"]
        assert own.to_numpy() == close(odds / (1 + odds))


def test_more_tests_and_seeds_keep_the_first_fits(arrays, run):
    data = om.dataset(*arrays)
    late = np.arange(len(data)) % SIZE >= SIZE // 2
    with pytest.raises(ExperimentError, match="include no clips of tense"):
        om.cross_validate(MODELS["pipeline"], data, tests={"calm": np.minimum(data.y, 0)})
    tests = {"late": np.where(late, data.y, -1), "all": data.y}
    more = om.cross_validate(MODELS["pipeline"], data, tests=tests, seeds=(0, 7))
    assert more.fits["seed"].nunique() == 2 * len(FILMS)
    first = more.predictions[more.predictions["fit"] < len(FILMS)]
    by_test = first.set_index("test")["probability"]
    for test, rows in {"late": late, "all": slice(None)}.items():
        assert by_test.loc[test].tolist() == predicted(run, "pipeline")[rows].tolist()
