import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import cli
from obygaze_models.commands._shared import echo_warnings
from obygaze_models.warnings import RunWarning


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
    assert "train mlp on EN vs S" in result.stdout
    assert "EN vs S: 5 of 10 positive  F1 positive" in result.stdout
    assert "Wrote runs/sure;" in result.stdout
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
    assert "features of x.zarr, " in result.stdout
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


def test_at_most_five_warnings_are_printed_where_a_file_has_all(capsys):
    leaks = [RunWarning("leak", f"task {number}", f"leak {number}") for number in range(6)]
    warnings = [*leaks, RunWarning("skipped", "", "fit 3"), RunWarning("concepts", "", "two")]
    echo_warnings(warnings, file=Path("runs/sure/run.json"))
    *lines, rest = capsys.readouterr().err.splitlines()
    assert lines == [f"WARNING: {warnings[row]}" for row in (0, 1, 2, 6, 7)]
    assert rest == "and 3 more warnings; runs/sure/run.json has all of them"
    echo_warnings(warnings)
    assert len(capsys.readouterr().err.splitlines()) == len(warnings)
