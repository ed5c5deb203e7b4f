"""Every command with ``--json`` prints on the golden data what an earlier release printed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import cli
from tests.golden.commands import COMMANDS
from tests.golden.comparing import VOLATILE, differences
from tests.golden.workspace import EXPECTED, make_workspace, run_command

#: Commands with --json that no golden command calls, and why.
LEFT_OUT = {
    "manifests thesaurus": "added later",
    "doctor": "which packages an extra brings was changed on purpose after the golden files",
    "models evaluate-moments": "added later",
    "stores import parquet": "added later",
    "stores import safetensors": "added later",
    "stores search": "added later",
}
SLOW = ("reproduce-table2", "reproduce-fig3")


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from click.testing import CliRunner

    def obygaze(*arguments: object):
        return CliRunner().invoke(cli.main, list(map(str, arguments)))

    return make_workspace(tmp_path_factory.mktemp("golden") / "workspace", obygaze)


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in SLOW])
def test_a_command_prints_the_golden_json(workspace, obygaze, name):
    golden = json.loads((EXPECTED / "json" / f"{name}.json").read_text(encoding="utf-8"))
    printed = run_command(name, workspace, obygaze)
    volatile = VOLATILE[""] | VOLATILE.get(name, set())
    assert not list(differences(golden, printed, volatile=volatile))


@pytest.mark.parametrize("name", SLOW)
def test_a_reproduction_is_the_same_to_the_digit(workspace, obygaze, name):
    golden = json.loads((EXPECTED / "json" / f"{name}.json").read_text(encoding="utf-8"))
    printed = run_command(name, workspace, obygaze)
    assert not list(differences(golden, printed, volatile=VOLATILE[""]))
    table = name.removeprefix("reproduce-")
    text = (workspace / "out" / table / f"{table}.txt").read_text(encoding="utf-8")
    assert digits(text) == digits((EXPECTED / f"{table}.txt").read_text(encoding="utf-8"))


def digits(text: str) -> list[list[str]]:
    """The numbers of each line of a table that has any with a point, as they are printed."""
    lines = (re.findall(r"[+-]?\d+\.\d+", line) for line in text.splitlines())
    return [numbers for numbers in lines if len(numbers) > 1]


def test_every_command_with_json_has_a_golden_output():
    called = {
        tuple(command.split()[:depth]) for command in COMMANDS.values() for depth in (1, 2, 3)
    }
    missing = [" ".join(path) for path in with_json(cli.main) if path not in called]
    assert sorted(missing) == sorted(LEFT_OUT)


def with_json(command, path=()):
    """The path of every command below one that has ``--json``."""
    import click

    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from with_json(command.get_command(context, name), (*path, name))
    elif any("--json" in option.opts for option in command.params):
        yield path


def test_differences_are_seen_and_additions_are_not():
    golden = {"a": 1, "b": [0.5, "x"], "seconds": 3, "said": "it took 4 long days"}
    fine = {"a": 1, "b": [0.5 + 1e-9, "x"], "seconds": 5, "said": "after 4 days it", "new": 1}
    assert not list(differences(golden, fine, volatile={"seconds"}))
    for wrong in (
        fine | {"a": 2},
        fine | {"a": True},
        fine | {"b": [0.51, "x"]},
        fine | {"b": [0.5, "y"]},
        fine | {"b": [0.5]},
        fine | {"said": "it took 5 long days"},
        {key: value for key, value in fine.items() if key != "seconds"},
    ):
        assert len(list(differences(golden, wrong, volatile={"seconds"}))) == 1
