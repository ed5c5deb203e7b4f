"""What the wheel must hold, and that it stands in nobody's way."""

from __future__ import annotations

import ast
import tomllib
from importlib.metadata import distributions
from pathlib import Path

import pytest

from obygaze_features.common.reference import reference_file

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_everything_that_manifests_ships_is_in_the_wheel() -> None:
    included = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    here = {f"manifests/{path.name}" for path in (ROOT / "manifests").iterdir() if path.is_file()}
    assert here == {name for name in included if name.startswith("manifests/")}
    for name in here:
        assert included[name] == f"obygaze_features/reference/{Path(name).name}"
        assert reference_file(Path(name).name).is_file()


def test_no_dependency_ships_a_module_called_cli() -> None:
    """``cli`` is a top-level name; whoever else took it would be overwritten, or overwrite us."""
    for distribution in distributions():
        if distribution.name != "obygaze":
            top = {Path(file).parts[0] for file in distribution.files or ()}
            assert not top & {"cli", "cli.py", "obygaze_features", "obygaze_models"}


def test_the_version_is_said_once() -> None:
    version = PROJECT["project"]["version"]
    assert f"version: {version}" in (ROOT / "CITATION.cff").read_text()
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text()


def test_only_tested_versions_are_claimed() -> None:
    claimed = [c for c in PROJECT["project"]["classifiers"] if "Python :: 3." in c]
    assert claimed == ["Programming Language :: Python :: 3.11"]
    assert "torch==2.13.0" in (ROOT / "constraints.txt").read_text().split()


SOURCES = sorted(
    path
    for package in ("obygaze_features", "obygaze_models")
    for path in (ROOT / package).rglob("*.py")
)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_module_says_why_it_is_there_and_what_it_offers(path: Path) -> None:
    module = ast.parse(path.read_text())
    assert ast.get_docstring(module)
    defined = {
        node.name
        for node in module.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_")
    }
    exported = next(
        (
            set(ast.literal_eval(node.value))
            for node in module.body
            if isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id == "__all__"
        ),
        set(),
    )
    assert exported or not defined, "a module with public names has an __all__"


def test_nothing_is_unpickled_or_evaluated() -> None:
    banned = {"pickle", "joblib", "dill", "cloudpickle", "shelve"}
    for path in [*SOURCES, ROOT / "cli.py"]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                assert not banned & {name.name.split(".")[0] for name in node.names}, path
            if isinstance(node, ast.ImportFrom):
                assert (node.module or "").split(".")[0] not in banned, path
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("eval", "exec"), path
