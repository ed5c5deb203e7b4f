"""Every command: help, examples, exit codes, late imports."""

import errno
import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import click
import msgspec
import pytest
from click.testing import Result

import obygaze_features as of
import obygaze_models as om
from obygaze_features.errors import ManifestError, UsageError
from tests.kit.commands import contexts

ROOT = Path(__file__).parents[2]
Obygaze = Callable[..., Result]
ALL = {context.command_path: context.command for context in contexts()}
ARRAYS = {"numpy", "scipy", "sklearn", "zarr"}
HEAVY = ARRAYS | {"av", "matplotlib", "pandas", "torch", "transformers", "xarray"}


def test_every_command_and_option_has_help_and_an_example() -> None:
    for name, command in ALL.items():
        text = command.help or ""
        assert len(text.splitlines()[0]) > 10, name
        examples = [line for line in text.splitlines() if line.strip().startswith("obygaze ")]
        assert name == "obygaze" or ("Example" in text and examples), name
        options = [option for option in command.params if isinstance(option, click.Option)]
        silent = [option.opts for option in options if not option.help and not option.hidden]
        assert silent == [], name
        # A lazy group repeats the help texts of its commands.
        for part, (_, line) in getattr(command, "lazy", {}).items():
            own = ALL[f"{name} {part}"].help or ""
            assert own.splitlines()[0] == line


def test_the_help_of_a_run_lists_the_keys_of_an_experiment() -> None:
    text = ALL["obygaze models run"].help or ""
    keys = [field.name for field in msgspec.structs.fields(om.Experiment)]
    assert {*keys} <= {*re.findall(r"\w+", text)}


#: Code that a fresh interpreter runs, one line after the other, and what is loaded then.
LIGHT: dict[str, set[str]] = {
    "from obygaze_models.commands.main import main": set(),
    "main(['--help'], standalone_mode=False)": set(),
    "main(['models', '--help'], standalone_mode=False)": set(),
    "main(['--version'], standalone_mode=False)": set(),
    "main(['report', '--help'], standalone_mode=False)": set(),
    "main(['features', '--help'], standalone_mode=False)": set(),
    "import obygaze_features, obygaze_models": set(),
    "import obygaze_features.manifests": {"numpy"},
    "import obygaze_features.store": {"numpy"},
}
LESS_LIGHT = {
    "from obygaze_features import Manifest, Store, Timelines, merge, open_store, pull": ARRAYS,
    "from obygaze_models import load_dataset, load_run": HEAVY - {"torch"},
}


@pytest.mark.parametrize("light", [LIGHT, LESS_LIGHT])
def test_help_and_light_imports_load_nothing_heavy(light: dict[str, set[str]]) -> None:
    look = f"print('|', *sorted({HEAVY!r} & {{name.split('.')[0] for name in sys.modules}}))"
    steps = [f"{code}\n{look}" for code in light]
    script = "\n".join(["import sys", *steps])
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    lines = run.stdout.splitlines()
    loaded = [set(line[1:].split()) for line in lines if line.startswith("|")]
    for (code, allowed), names in zip(light.items(), loaded, strict=True):
        assert names <= allowed, code


NO_SPACE = OSError(errno.ENOSPC, "No space left on device", "m")
NO_TORCH = "Error: torch cannot be imported (why); install it with: pip install 'obygaze[models]'\n"
NOT_ASCII = "Error: 'x' codec can't encode character '\\xe9' in position 0: why; set PYTHONUTF8=1\n"
#: What a command raises, its exit code, and what it prints.
ENDS: list[tuple[BaseException, int, str]] = [
    (ManifestError("what, where, what to do"), 1, "Error: what, where, what to do\n"),
    (ManifestError("a\x1b]0;b\x07"), 1, "Error: a\\u001b]0;b\\u0007\n"),
    (ManifestError("x" * 2000), 1, f"Error: {'x' * 750} ... {'x' * 750}\n"),
    (UsageError("not together"), 2, "Error: not together\n"),
    (NO_SPACE, 1, "Error: m: No space left on device; free some space\n"),
    (MemoryError(), 1, "Error: out of memory; free some memory, and run the command again\n"),
    (ModuleNotFoundError("why", name="torch"), 1, NO_TORCH),
    (UnicodeEncodeError("x", "é", 0, 1, "why"), 1, NOT_ASCII),
    (KeyboardInterrupt(), 130, "Interrupted.\n"),
]


@pytest.mark.parametrize(("problem", "code", "printed"), ENDS)
def test_a_command_ends_with_its_code_and_one_line(
    monkeypatch: pytest.MonkeyPatch,
    obygaze: Obygaze,
    problem: BaseException,
    code: int,
    printed: str,
) -> None:
    def fail(*_: object) -> None:
        raise problem

    monkeypatch.setattr(of.Manifest, "load", fail)
    assert obygaze("manifests", "show", "m", code=code).stderr == printed


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such signals")
def test_an_interrupt_at_startup_shows_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "click.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [target] = project["scripts"].values()
    module, _, name = target.partition(":")
    # Like a foreground process started by a shell.
    script = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
        f"from {module} import {name}; {name}()"
    )
    command = [sys.executable, "-c", script, "--help"]
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (result.returncode, result.stdout, result.stderr) == (-signal.SIGINT, "", "")
