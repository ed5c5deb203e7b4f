"""From annotators' timelines to moments and their scores: MObyGaze's sample, features made up."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import obygaze_features as of
import obygaze_models as om
from obygaze_features.common.elan import read_eaf
from obygaze_features.common.tables import read_table
from obygaze_features.errors import AnnotationError
from obygaze_models.explain.moments import CLOSE_GAPS_S, CLOSE_GAPS_SHARE, MIN_LENGTH_S

FRAMES, SIZE, FILM = 16, 12, "tt0097576"


@pytest.fixture(scope="module")
def mobygaze(authors: Path, tmp_path_factory: pytest.TempPathFactory) -> SimpleNamespace:
    """A run on clips of 30 s; in its features, frames that annotator1 marked Sure stand apart."""
    folder = tmp_path_factory.mktemp("mobygaze")
    timelines = of.Timelines.from_mobygaze(authors / "mobygaze/sample_120_rows.csv")
    timelines.save(folder / "timelines")
    projected = timelines.project(30)
    manifest = projected.grid.with_parts(labels=projected.label_sets)
    manifest = manifest.with_parts(splits=[of.stratified(manifest, folds=3, labels="annotator1")])
    manifest.save(folder / "manifest")
    items = manifest.items
    steps = (np.arange(FRAMES) + 0.5) / FRAMES
    times = items.starts[:, None] + steps * (items.ends - items.starts)[:, None]
    chance = np.random.default_rng(8)
    frames = chance.standard_normal((*times.shape, SIZE), np.float32)
    for segment in timelines.by_film[FILM]["annotator1"]:
        if segment.level == "S":
            frames[(segment.start <= times) & (times < segment.end)] += 1.5
    arrays = {"native": frames.mean(axis=1), "frames": frames, "frame_time": times}
    for name, values in arrays.items():
        np.save(folder / f"{name}.npy", values)
    paths = {name: folder / f"{name}.npy" for name in arrays}
    of.import_features(paths, manifest, folder / "s.zarr", ids=manifest.ids)
    experiment = om.Experiment(
        "moments", folder / "manifest", folder / "s.zarr", labels="annotator1", protocol="split",
        split="leak-free",
        positives=("S",), train_negatives=("EN", "HN"),
        estimators=("logistic", {"name": "frame-mil", "max_iter": 40}),
    )  # fmt: skip
    run = om.run_experiment(experiment, folder / "run")
    return SimpleNamespace(folder=folder, timelines=timelines, store=folder / "s.zarr", run=run)


@pytest.fixture(scope="module")
def sample_moments(mobygaze: SimpleNamespace) -> om.Moments:
    return mobygaze.run.moments()


def test_the_help_has_the_librarys_defaults(obygaze):
    words = " ".join(obygaze("models", "moments", "--help").output.split())
    assert f"Drop shorter moments, in seconds. [default: {MIN_LENGTH_S:g}]" in words
    assert f"[default: {CLOSE_GAPS_S:g}, at most a tenth of the film or clip]" in words
    assert CLOSE_GAPS_SHARE == 0.1


def test_planted_moments_are_found(mobygaze, sample_moments):
    first, second = om.evaluate_moments(sample_moments, mobygaze.timelines).annotators
    assert (first.annotator, second.annotator) == ("annotator1", "annotator2")
    scores = {key: score.value for key, score in first.scores.items()}
    assert scores["frame_average_precision"] >= 0.8
    assert scores["frame_auroc"] > 0.95
    for key, score in first.scores.items():
        assert score.value > score.random + 0.15, (key, score)
    # The other annotator marked other moments, which the features do not know.
    assert second.scores["frame_average_precision"].value < scores["frame_average_precision"]


def test_the_commands_are_the_python_calls(mobygaze, sample_moments, obygaze, tmp_path):
    named = {name: tmp_path / f"{name}.csv" for name in ("moments", "frames", "scores")}
    run, store = mobygaze.folder / "run", mobygaze.store
    result = obygaze(
        "models", "moments", run, store, "-o", named["moments"], "--frames", named["frames"],
        "--elan", tmp_path / "elan", "-o", tmp_path / "film.svg",
        "--film", "Indiana Jones and the Last Crusade",
        "--timelines", mobygaze.folder / "timelines", "--manifest", mobygaze.folder / "manifest",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    limits = sorted(set(sample_moments.thresholds.values()))
    assert len(limits) == 3, "a threshold a fold"
    shown = f"thresholds of {limits[0]:.3f} to {limits[-1]:.3f}"
    assert f"{len(sample_moments.moments)} moments at {shown} in 1 film" in result.output
    assert "next: obygaze models evaluate-moments" in result.output
    assert named["moments"].read_text() == sample_moments.to_csv()
    assert named["frames"].read_text() == sample_moments.frames.to_csv()

    document, _, _ = read_eaf(tmp_path / "elan" / f"{FILM}.eaf", AnnotationError)
    [tier] = document.tiers
    times = [(note.start, note.end) for note in tier.annotations]
    assert times == [(round(1000 * m.start), round(1000 * m.end)) for m in sample_moments.moments]
    drawn = (tmp_path / "film.svg").read_text()
    for text in ("annotator1", "labels of clips", "moments", "threshold", "Sure"):
        assert f">{text}" in drawn

    tables = [named["moments"], named["frames"], mobygaze.folder / "timelines"]
    result = obygaze("models", "evaluate-moments", *tables, "--json", "--csv", named["scores"])
    assert result.exit_code == 0, result.output
    printed = json.loads(result.stdout)
    expected = om.evaluate_moments(om.Moments.from_csv(*tables[:2]), mobygaze.timelines)
    for entry, scored in zip(printed["annotators"], expected.annotators, strict=True):
        values = {key: score["value"] for key, score in entry["scores"].items()}
        assert values == {key: score.value for key, score in scored.scores.items()}
    table = read_table(named["scores"])
    assert len(table) == len(expected.rows())
    lines = obygaze("models", "evaluate-moments", *tables).stdout.splitlines()
    assert lines[0].startswith("annotator1: 16 segments of Sure in 1 film, ")
    assert max(map(len, lines)) <= 100


def test_no_moments_for_elan_leave_the_tables(mobygaze, obygaze, tmp_path):
    result = obygaze(
        "models", "moments", mobygaze.folder / "run", mobygaze.store, "--threshold", 1,
        "-o", tmp_path / "m.csv", "--frames", tmp_path / "f.csv", "--elan", tmp_path / "elan",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "no files for ELAN: there are no moments" in result.stderr
    assert not len(read_table(tmp_path / "m.csv"))
    assert len(read_table(tmp_path / "f.csv"))
    assert not (tmp_path / "elan").exists()


def test_bad_input_is_one_line(mobygaze, sample_moments, obygaze, tmp_path):
    def message(*arguments):
        result = obygaze("models", *arguments)
        assert result.exit_code > 0, result.output
        assert result.stderr.count("\n") == 1
        return result.stderr

    [vectors] = [row["folder"] for row in mobygaze.run.models() if row["model"] == "logistic"][:1]
    output = ["-o", tmp_path / "m.csv"]
    assert "does not predict frames" in message("moments", vectors, mobygaze.store, *output)
    assert "add one: -o FILE.svg" in message(
        "moments", vectors, mobygaze.store, *output, "--film", FILM
    )
    same = message("moments", vectors, mobygaze.store, *output, "--frames", output[1])
    assert "-o, --frames and --figure need different files" in same
    texts = {"moments": sample_moments.to_csv(), "frames": sample_moments.frames.to_csv()}
    for name, text in texts.items():
        (tmp_path / f"{name}.csv").write_text(text.replace(FILM, "tt0000001"))
    tables = [tmp_path / "moments.csv", tmp_path / "frames.csv", mobygaze.folder / "timelines"]
    assert "of other films (tt0097576)" in message("evaluate-moments", *tables)
    assert "unknown label 'Surely'" in message(
        "evaluate-moments", *tables[:2], tables[2], "--positives", "Surely"
    )
