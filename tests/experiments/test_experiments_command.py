import json
import subprocess
import sys

import msgspec
import numpy as np
import pytest
from click.testing import CliRunner

import cli
from obygaze_features.manifests import Manifest, Split
from obygaze_features.manifests.splits import leave_film_out
from obygaze_models.commands._shared import echo_warnings
from obygaze_models.experiments.run import run_experiment
from obygaze_models.experiments.run_folder import read_results
from obygaze_models.experiments.summary import describe_run
from obygaze_models.warnings import RunWarning, group_warnings


@pytest.fixture
def in_folder(tmp_path, monkeypatch, world):
    """A folder with an experiment file, and the user standing in it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sure.toml").write_text(
        f"""
        name = "Sure against Easy"
        manifest = "{world.manifest.as_posix()}"
        store = "{world.store.as_posix()}"
        split = "ten"
        positives = ["S"]
        train_negatives = ["EN"]
        """,
        encoding="utf-8",
    )
    return tmp_path


def obygaze(*arguments):
    return CliRunner().invoke(cli.main, arguments)


def test_runs_and_says_where_the_result_lies(in_folder):
    result = obygaze("models", "run", "sure.toml")
    assert result.exit_code == 0
    assert "train mlp on EN vs S" in result.stderr
    first, wrote, *tables = result.stdout.splitlines()
    assert first.startswith("mlp: F1 positive ")
    assert wrote.startswith("Wrote runs/sure;")
    assert "EN vs S: 5 of 10 positive" in tables
    assert max(map(len, tables)) <= 100
    [scores] = read_results(in_folder / "runs/sure").run.record.scores
    assert first.startswith(f"mlp: F1 positive {scores.mean['f1']:.2f} (too few clips to say) on ")
    assert (in_folder / "runs/sure/run.json").is_file()

    again = obygaze("models", "run", "sure.toml")
    assert again.exit_code == 1
    assert "--overwrite" in again.stderr
    assert obygaze("models", "run", "sure.toml", "--overwrite").exit_code == 0


def test_prints_json_for_scripts(in_folder):
    result = obygaze("models", "run", "sure.toml", "-o", "mine", "--json")
    record = json.loads(result.stdout)
    assert record == json.loads((in_folder / "mine/run.json").read_text(encoding="utf-8"))


def test_a_mistake_is_one_line(in_folder):
    result = obygaze("models", "run", "other.toml")
    assert result.exit_code == 1
    assert result.stderr == "Error: other.toml cannot be read: No such file or directory\n"


def test_a_stores_address_is_shown_without_its_secrets(in_folder):
    experiment = in_folder / "sure.toml"
    lines = experiment.read_text(encoding="utf-8").splitlines()
    url = "http://ann:hush@127.0.0.1:1/x.zarr?token=hush"
    lines = [f'store = "{url}"' if "store =" in line else line for line in lines]
    experiment.write_text("\n".join(lines), encoding="utf-8")
    result = obygaze("models", "run", "sure.toml")
    assert result.exit_code == 1
    assert "features of x.zarr\n" in result.stderr
    assert "hush" not in result.output


@pytest.mark.parametrize("name", ["models", "report"])
def test_the_list_of_commands_repeats_their_first_line(name):
    root = cli.main
    _, line = root.lazy[name]
    assert root.get_command(None, name).help.splitlines()[0] == line


def test_help_imports_nothing_heavy():
    heavy = {"torch", "sklearn", "transformers", "av", "zarr", "numpy", "matplotlib", "pandas"}
    code = (
        "import sys\n"
        "import obygaze_models.commands.models, obygaze_models.commands.report\n"
        f"print(sorted({heavy} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_says_what_leaks_or_was_left_out_loudly(in_folder):
    text = (in_folder / "sure.toml").read_text(encoding="utf-8")
    (in_folder / "film.toml").write_text(text + 'protocol = "leave-film-out"', encoding="utf-8")
    result = obygaze("models", "run", "film.toml")
    assert result.exit_code == 0, result.output
    assert "film left out" in result.stdout
    assert "over 12 fits" in result.stdout


def test_films_that_are_not_tested_are_in_the_first_line(in_folder, world):
    """A run by film names its test films first, on both streams."""
    text = (in_folder / "sure.toml").read_text(encoding="utf-8")
    by_film = text.replace('split = "ten"', 'split = "films"')
    manifest = Manifest.load(world.manifest)
    manifest.with_parts(splits=[leave_film_out(manifest, name="films")]).save(in_folder / "films")
    by_film = by_film.replace(world.manifest.as_posix(), "films")
    (in_folder / "one.toml").write_text(by_film + 'protocol = "leak-free"', encoding="utf-8")
    (in_folder / "each.toml").write_text(by_film, encoding="utf-8")
    one, each = obygaze("models", "run", "one.toml"), obygaze("models", "run", "each.toml")
    assert one.stdout.splitlines()[0] == "Tests 1 of 4 films: tt3"
    assert "Sure against Easy: tests 1 of 4 films: tt3\n" in one.stderr
    assert each.stdout.splitlines()[0].startswith("mlp: F1 positive ")
    for name, tested in (("one", ["tt3"]), ("each", ["tt0", "tt1", "tt2", "tt3"])):
        results = read_results(in_folder / "runs" / name)
        clips = {clip for fit in results.said for clip in fit.ids}
        assert sorted({clip.split("-")[0] for clip in clips}) == tested
        assert list(results.run.record.films.titles.values()) == tested
    record = read_results(in_folder / "runs/one").run.record
    assert record.films.untested == dict.fromkeys(["tt0", "tt1", "tt2"], "not in a test fold")


def test_many_films_are_a_range_unless_all_are_asked_for(in_folder, world):
    """The lowest, the highest and the median of the films' scores, by the record's own numbers."""
    text = (in_folder / "sure.toml").read_text(encoding="utf-8")
    (in_folder / "film.toml").write_text(text + 'protocol = "leave-film-out"', encoding="utf-8")
    record = run_experiment(in_folder / "film.toml", in_folder / "run").record
    [scores] = record.scores
    groups = {f"film {film}": list(scores.groups.values())[film % 4] for film in range(20)}
    many = msgspec.structs.replace(record, scores=[msgspec.structs.replace(scores, groups=groups)])
    means = sorted(group.mean["f1"] for group in groups.values())
    text = describe_run(many)
    assert f"mlp: from {means[0]:.2f} (film " in text
    assert f"median {np.median(means):.2f}" in text
    assert sum("film 1" in line for line in text.splitlines()) <= 1
    every = describe_run(many, verbose=True).splitlines()
    assert sum(line.startswith("film ") for line in every) == 20


def test_at_most_five_warnings_are_printed_unless_all_are_asked_for(capsys):
    leaks = [RunWarning("leak", f"task {number}", f"leak {number}") for number in range(6)]
    same = [RunWarning("fit", name, f"{name}: stopped early.") for name in ("mlp", "svm")]
    others = [RunWarning(f"code {number}", "", f"text {number}") for number in range(4)]
    warnings = [*others, *same, *leaks]
    echo_warnings(warnings, verbose=False)
    *lines, rest = capsys.readouterr().err.splitlines()
    assert lines[0] == "WARNING: LEAKAGE: leak 0 (and 5 more of this kind)"
    assert len(lines) == 5
    assert rest == "and 1 more kind of warning; -v prints all"
    assert group_warnings(same) == ["mlp and svm: stopped early."]
    echo_warnings(warnings)
    assert len(capsys.readouterr().err.splitlines()) == len(warnings)


@pytest.mark.parametrize(
    ("names", "key", "exit_code", "split", "words"),
    [
        (["ten"], "", 0, "ten", "folds of ten, the only split of toy"),
        (["official"], "", 0, "official", "protocol official"),
        (
            ["ten", "other"],
            "",
            1,
            "",
            'several splits: other, ten. Name one in the experiment (split = "NAME")',
        ),
        (["ten", "other"], "split = 'other'", 0, "other", ""),
        (["ten", "other"], "split = ''", 0, "stratified, 10 folds, seed 0", ""),
        (["ten", "other"], "protocol = 'leave-film-out'", 0, "", ""),
        ([], "", 0, "stratified, 10 folds, seed 0", ""),
    ],
)
def test_without_a_split_the_manifests_only_one_is_taken(
    in_folder, world, names, key, exit_code, split, words
):
    manifest = Manifest.load(world.manifest)
    splits = [Split(name, world.ids, world.folds) for name in names if name != "ten"]
    manifest.with_parts(splits=splits).save(in_folder / "manifest")
    if "ten" not in names:
        for path in (in_folder / "manifest/splits").glob("ten.*"):
            path.unlink()
    text = (in_folder / "sure.toml").read_text(encoding="utf-8")
    text = text.replace('split = "ten"', key).replace(world.manifest.as_posix(), "manifest")
    (in_folder / "sure.toml").write_text(f"{text}\nestimators = ['majority']", encoding="utf-8")
    trained = obygaze("models", "train", "sure.toml", "--estimator", "majority")
    result = obygaze("models", "run", "sure.toml")
    for done in (trained, result):
        assert done.exit_code == exit_code, done.output
        assert words in done.stderr
        assert exit_code == 0 or done.stderr.count("\n") <= 2
    if exit_code == 0:
        assert read_results(in_folder / "runs/sure").run.record.split == split


def test_skipped_folds_end_with_exit_code_3(in_folder, world):
    """Fold 4 has no clip of S, so it cannot validate; the others go on."""
    manifest = Manifest.load(world.manifest)
    lacking = [
        0 if (fold, level) == (4, "S") else fold
        for fold, level in zip(world.folds, world.levels, strict=True)
    ]
    manifest.with_parts(splits=[Split("lacking", world.ids, lacking)]).save(in_folder / "manifest")
    text = (in_folder / "sure.toml").read_text(encoding="utf-8")
    text = text.replace('"ten"', '"lacking"').replace(world.manifest.as_posix(), "manifest")
    (in_folder / "sure.toml").write_text(f"{text}\nestimators = ['majority']", encoding="utf-8")
    for number, options in enumerate(([], ["--json"])):
        result = obygaze("models", "run", "sure.toml", "-o", f"run{number}", *options)
        assert result.exit_code == 3
        assert "SKIPPED: EN vs S, validation fold 4: the validation set has no clip of S" in (
            result.stderr
        )
        assert f"1 fit or test was skipped; run{number}/run.json says why" in result.stderr


def test_a_model_or_run_that_is_not_there_is_named(obygaze, tmp_path):
    result = obygaze("models", "predict", tmp_path / "nope", "--csv", tmp_path / "tables")
    assert (result.exit_code, f"{tmp_path / 'nope'} does not exist" in result.stderr) == (2, True)
