"""A run's held-out predictions in tables and beside the annotators in ELAN, by other readers."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import Result
from pympi.Elan import Eaf

from obygaze_features.annotations import Film, Segment, Timelines
from obygaze_features.annotations.export import elan_files
from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Item, Items, LabelSet, Manifest, obygaze_scheme
from obygaze_models.experiments.experiment import Experiment
from obygaze_models.experiments.explanations import Explained
from obygaze_models.experiments.run import run_experiment
from obygaze_models.experiments.run_folder import Run, read_results
from obygaze_models.explain.parts import average_parts
from obygaze_models.held_out import HeldOut, held_out, held_out_elan, held_out_table
from obygaze_models.report.explorer import explorer_data
from obygaze_models.report.runs import prepare_runs
from tests.world import write_store

CONCEPTS = ("Look", "Body")
FILMS = ("juno", "tt0120338", "=film")
CLIPS = 40


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A bottleneck and a guess, tested on each of three films."""
    folder = tmp_path_factory.mktemp("held-out")
    chance = np.random.default_rng(5)
    items = [
        Item(f"f{at}-{n:03}", film=film.strip("="), media=film, start=10.0 * n, end=10.0 * n + 10)
        for at, film in enumerate(FILMS)
        for n in range(CLIPS)
    ]
    shows = chance.random((len(items), 2)) < 0.5
    features = chance.normal(size=(len(items), 8)).astype(np.float32)
    features[:, :2] += 3 * shows
    sure = shows[:, 0] & (chance.random(len(items)) < 0.9)
    labels = LabelSet(
        "all",
        [item.id for item in items],
        ["S" if s else "HN" if any(has) else "EN" for s, has in zip(sure, shows, strict=True)],
        [tuple(n for n, has in zip(CONCEPTS, row, strict=True) if has) for row in shows],
    )
    extra = {"movie_title": ["Juno" if item.film == "juno" else "" for item in items]}
    manifest = Manifest("spans", Items.of(items, extra), scheme=obygaze_scheme())
    manifest = manifest.with_parts(labels=[labels])
    manifest.save(folder / "manifest")
    write_store(folder / "spans.zarr", manifest, dict(zip(manifest.ids, features, strict=True)))
    experiment = Experiment(
        "Sure", folder / "manifest", folder / "spans.zarr", protocol="leave-film-out",
        positives=("S",), train_negatives=("EN", "HN"), estimators=("pcbm-logistic", "mlp"),
    )  # fmt: skip
    return run_experiment(experiment, folder / "run")


def read_csv(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_each_clip_has_the_mean_of_the_fits_that_tested_it(run: Run) -> None:
    rows = held_out(run)
    with (run.folder / "predictions.csv").open() as file:
        said: dict[tuple[str, str], list[float]] = {}
        for row in csv.DictReader(file):
            said.setdefault((row["model"], row["id"]), []).append(float(row["probability"]))
    assert {(row.model, row.clip.id) for row in rows} == set(said)
    for row in rows:
        mean = np.mean(said[row.model, row.clip.id])
        assert (row.target, row.predicted) == ("S", "S" if mean > 0.5 else "EN+HN")
        assert row.probability == pytest.approx(mean)
    assert [row.clip.start for row in rows[:CLIPS]] == sorted(
        row.clip.start for row in rows[:CLIPS]
    )


def test_a_clips_parts_are_the_same_wherever_they_are_shown(
    run: Run, tmp_path: Path, obygaze: Callable[..., Result]
) -> None:
    """In the page, in ELAN, in both tables, and by the saved models of the folds that tested it."""
    clips, kind = [f"f1-{n:03}" for n in range(0, CLIPS, 5)], "parts in the log-odds of S"
    outputs = ("--csv", tmp_path, "-o", tmp_path / "all.csv", "--elan", tmp_path)
    assert obygaze("models", "predict", run.folder, *outputs).exit_code == 0
    runs = prepare_runs([read_results(run.folder)])
    data = explorer_data((runs[0], runs[0].models[0]), runs, {})
    [view] = [view for view in data["views"] if view["model"] == "pcbm-logistic"]
    why, row_of = view["why"], {data["clips"][0]["ids"][at]: r for r, at in enumerate(view["at"])}
    assert f"parts in the {why['of']}" == kind
    assert not any(row.parts for row in held_out(run, model="mlp"))

    files = (tmp_path / "tt0120338.csv", "utf-8-sig"), (tmp_path / "all.csv", "utf-8")
    tables = [
        {
            row["clip"]: row[kind]
            for row in read_csv(path.read_text(encoding=encoding))
            if row["model"] == "pcbm-logistic"
        }
        for path, encoding in files
    ]
    eaf = Eaf(str(tmp_path / "tt0120338.eaf"))
    [tier] = [name for name in eaf.get_tier_names() if name.endswith(kind)]
    in_elan = {
        int(part[0]) // 10_000: part[2] for part in eaf.get_ref_annotation_data_for_tier(tier)
    }

    predicted, by_fit = set(), {clip: [] for clip in clips}  # type: ignore[var-annotated]
    folders = {model["fit"]: model["folder"] for model in run.models() if model["model"] != "mlp"}
    for fit in run.predictions():
        if fit.model == "mlp" or clips[0] not in fit.ids:
            continue
        store = run.record.experiment["store"]
        result = obygaze("models", "explain", folders[fit.fit], store, *clips, "--json")
        for found in json.loads(result.stdout):
            parts = found["explanation"]["why"]["contributions"]
            by_fit[found["id"]].append({part["concept"]: part["amount"] for part in parts})
            predicted.add(found["explanation"]["label"])
    for clip, fits in by_fit.items():
        means = {name: float(np.mean([parts[name] for parts in fits])) for name in fits[0]}
        order = sorted(means, key=lambda name: -abs(means[name]))
        row = row_of[clip]
        assert [why["concepts"][place] for place in why["order"][row]] == order
        for name in order:
            column = why["amounts"][why["concepts"].index(name)]
            shown = column["of"][row] * column["unit"]
            assert shown == pytest.approx(means[name], abs=0.51 * column["unit"])
        for text in (in_elan[int(clip[3:])], *(table[clip] for table in tables)):
            assert [part.rpartition(" ")[0] for part in text.split(", ")] == order
            amounts = [float(part.rpartition(" ")[2]) for part in text.split(", ")]
            assert amounts == pytest.approx([means[name] for name in order], abs=0.0051)
    assert predicted == {"S", "EN+HN"}


def explained(labels: list[str], amounts: list[list[float]]) -> Explained:
    ids, parts = [f"c{n}" for n in range(len(labels))], np.array(amounts)
    return Explained("m", "t", 0, "sum", CONCEPTS, ids, labels, parts, parts, parts[:, 0])


def test_parts_of_the_other_class_are_turned() -> None:
    fits = [explained(["S"], [[1.0, -2.0]]), explained(["EN"], [[-2.0, 4.0]])]
    parts = average_parts(fits, ("EN", "S"), ["c0", "never"])
    assert parts.of_clip(0) == (("Body", -3.0), ("Look", 1.5))
    assert parts.intercept is not None
    assert parts.intercept[0] == 1.5
    assert parts.of_clip(1) == ()


def test_fits_of_different_predictions_have_no_parts() -> None:
    fits = [explained(["S", "S"], [[1, 0], [1, 0]]), explained(["S", "EN"], [[3, -4], [1, 0]])]
    parts = average_parts(fits, ("EN", "HN", "S"), ["c0", "c1"])
    assert [parts.of_clip(row) for row in (0, 1)] == [(("Look", 2.0), ("Body", -2.0)), ()]


def test_tables_have_title_times_and_reasons(
    run: Run, tmp_path: Path, obygaze: Callable[..., Result]
) -> None:
    result = obygaze(
        "models", "predict", run.folder, "--csv", tmp_path / "t", "-o", tmp_path / "all.csv"
    )
    assert result.exit_code == 0, result.output
    assert "120 clips of 3 films; 2 models" in result.output
    files = sorted(path.name for path in (tmp_path / "t").iterdir())
    assert files == ["film.csv", "juno.csv", "tt0120338.csv"]
    rows = read_csv((tmp_path / "t/tt0120338.csv").read_text(encoding="utf-8-sig"))
    assert {row["title"] for row in rows} == {"Titanic (1997)"}
    [row] = [row for row in rows if row["clip"] == "f1-007" and row["model"] == "pcbm-logistic"]
    assert (row["from"], row["to"], row["start"], row["end"]) == (
        "0:01:10",
        "0:01:20",
        "70.000",
        "80.000",
    )
    manifest = Manifest.load(run.record.experiment["manifest"])
    labels = manifest.labels()
    assert row["annotators"] == labels.level_of["f1-007"]
    assert row["concepts"] == ", ".join(labels.concepts_of["f1-007"])
    assert len(read_csv((tmp_path / "all.csv").read_text())) == 240
    film = read_csv((tmp_path / "t/film.csv").read_text(encoding="utf-8-sig"))
    assert {row["file"] for row in film} == {"'=film"}  # no formula


def test_annotators_and_models_stand_in_one_eaf(
    run: Run, tmp_path: Path, obygaze: Callable[..., Result]
) -> None:
    segments = [
        Segment("Titanic", "ann", 1.5, 20.25, "S", ("Look",), "a comment"),
        Segment("Titanic", "ben", 3.0, 9.0, "HN"),
        Segment("Titanic", "ben", 8.5, 12.0, "EN"),
    ]
    timelines = Timelines.of("t", segments, films={"Titanic": Film("Titanic", 400.0)})
    for name, text in elan_files(timelines).items():
        path = tmp_path / "theirs" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    before = (tmp_path / "theirs/Titanic.eaf").read_bytes()
    out = tmp_path / "both"
    arguments = [
        "models",
        "predict",
        run.folder,
        "--elan",
        out,
        "--annotations",
        tmp_path / "theirs",
    ]
    result = obygaze(*arguments)
    assert result.exit_code == 0, result.output
    assert "of 2 films" in result.output  # no file of the annotators'
    assert (tmp_path / "theirs/Titanic.eaf").read_bytes() == before
    theirs, both = (Eaf(str(path / "Titanic.eaf")) for path in (tmp_path / "theirs", out))
    for tier in theirs.get_tier_names():
        parent = theirs.get_parameters_for_tier(tier).get("PARENT_REF")
        read = Eaf.get_ref_annotation_data_for_tier if parent else Eaf.get_annotation_data_for_tier
        assert read(both, tier) == read(theirs, tier)
    predicted = {
        int(row.clip.start or 0): row.predicted
        for row in held_out(run, model="mlp") if row.clip.film == "tt0120338"
    }  # fmt: skip
    [tier] = [t for t in both.get_tier_names() if t.startswith("mlp: ") and "," not in t]
    heard = {start // 1000: value for start, _, value in both.get_annotation_data_for_tier(tier)}
    assert heard == predicted
    assert Timelines.from_elan(out / "Titanic.eaf").segments == timelines.segments
    assert not [
        i for i in Timelines.from_elan(out / "Titanic.eaf").issues if "overlaps" not in i.problem
    ]
    # What nobody edited since is replaced; a file with predictions alone is no annotation.
    assert obygaze(*arguments, "--overwrite").exit_code == 0
    alone = obygaze("annotations", "import", "elan", out / "juno.eaf", "-o", tmp_path / "tl")
    assert "holds a model's predictions, and no annotations" in alone.output


def test_both_annotators_files_of_a_film_get_the_model(run: Run, tmp_path: Path) -> None:
    for annotator in ("ann", "ben"):
        timelines = Timelines.of("t", [Segment("Titanic", annotator, 1.5, 20.25, "S")])
        (tmp_path / annotator).mkdir()
        (tmp_path / annotator / "Titanic.eaf").write_text(elan_files(timelines)["Titanic.eaf"])
    files, _ = held_out_elan(held_out(run, model="mlp"), tmp_path)
    for annotator in ("ann", "ben"):
        path = tmp_path / "copy.eaf"
        path.write_text(files[f"{annotator}/Titanic.eaf"])
        tiers = Eaf(str(path)).get_tier_names()
        assert annotator in tiers
        assert any(tier.startswith("mlp: ") for tier in tiers)


def test_options_that_do_not_fit_are_refused(
    run: Run, tmp_path: Path, obygaze: Callable[..., Result]
) -> None:
    (tmp_path / "a").mkdir()
    for arguments, message in (
        ([run.folder, "x.zarr"], "need no STORE"),
        ([run.folder, "--annotations", tmp_path], "needs --elan"),
        ([run.folder, "--estimator", "mpl"], "did you mean mlp"),
        ([run.folder, "--elan", tmp_path / "e", "--annotations", tmp_path / "a"], "no .eaf files"),
        ([run.folder, "--elan", tmp_path / "e", "--annotations", tmp_path], "folder outside"),
        ([tmp_path], "a model predicts the clips of a store"),
        ([tmp_path, "--estimator", "mlp"], "are for a run"),
    ):
        result = obygaze("models", "predict", *arguments)
        assert result.exit_code != 0
        assert message in result.output
    with pytest.raises(ExperimentError, match="no clip 'nobody'"):
        held_out(run, ids=["nobody"])


def test_clips_without_times_have_no_place_in_elan(run: Run) -> None:
    from dataclasses import replace

    rows: list[HeldOut] = held_out(run, model="mlp", ids=["f0-001"])
    untimed = [replace(row, clip=replace(row.clip, start=None, end=None)) for row in rows]
    with pytest.raises(ExperimentError, match="--csv"):
        held_out_elan(untimed)


def test_no_text_of_a_table_is_a_formula(run: Run) -> None:
    row = held_out(run, model="mlp")[0]
    codes = replace(row, clip=replace(row.clip, level="=1+1", title="-5.0+A1"))
    (cells,) = read_csv(held_out_table([codes]))
    assert (cells["annotators"], cells["title"]) == ("'=1+1", "'-5.0+A1")
    assert float(cells["probability"]) == pytest.approx(row.probability, abs=1e-6)
