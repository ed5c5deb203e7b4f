"""The contents of the wheel, and its independence from other modules."""

import os
import re
import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import cli
import obygaze_models as om

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_all_shipped_manifests_are_in_the_wheel() -> None:
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    folders = ("*", "batteries/*", "lexicons/*")  # others are users' manifests
    files = [path for inside in folders for path in (ROOT / "manifests").glob(inside)]
    here = {path.relative_to(ROOT).as_posix() for path in files if path.is_file()}
    assert here == {name for name in wheel["only-include"] if name.startswith("manifests/")}
    example = ROOT / "examples/mobygaze"
    shipped = {name for name in wheel["only-include"] if name.startswith("examples/")}
    names = {path.name for path in example.iterdir() if path.suffix not in (".sh", ".py")}
    assert shipped == {"examples/forrest-gump", *(f"examples/mobygaze/{name}" for name in names)}
    assert om.load_experiment(example / "reasons.toml").estimators == ("pcbm-logistic",)
    assert wheel["sources"] == {
        "manifests": "obygaze_features/reference",
        "examples/forrest-gump": "obygaze_features/reference/forrest-gump",
        "examples/mobygaze": "obygaze_features/reference/mobygaze",
    }


def licences(page: Path, films: list[str]) -> list[str]:
    """Return the licence in the only line of a page that names each film."""
    named = []
    for film in films:
        [line] = [line for line in page.read_text().splitlines() if film in line]
        named.append(re.findall(r"CC BY \d\.0|public domain", line)[0])
    return named


def test_every_open_film_has_its_licence() -> None:
    """The films are for the repository and the sdist; the wheel has none of them."""
    pictures = ROOT / "examples/pictures"
    films = sorted(path.name for path in (pictures / "films").iterdir())
    assert len(films) == 8
    beside = licences(pictures / "README.md", films)
    assert beside == licences(ROOT / "NOTICE", films)
    targets = PROJECT["tool"]["hatch"]["build"]["targets"]
    assert "examples" in targets["sdist"]["only-include"]
    assert not any(
        name.startswith("examples/pictures") for name in targets["wheel"]["only-include"]
    )
    rows = (pictures / "labels.csv").read_text().split()[1:]
    assert {f"{row.rpartition('-')[0]}.mp4" for row in rows} == {*films}


def test_the_command_ignores_a_foreign_cli_module(tmp_path: Path) -> None:
    """The entry point runs where PYTHONPATH contains a lab's own modules."""
    for name in ("cli", "main", "commands"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the lab')\n")
    [(name, target)] = PROJECT["project"]["scripts"].items()
    point = EntryPoint(name, target, "console_scripts")
    script = f"import sys; from {point.module} import {point.attr}; sys.exit({point.attr}())"
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-c", script, "manifests", "--help"]
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")
    assert "import" in run.stdout
    assert cli.start is point.load()  # python cli.py, in a checkout


def test_versions_match_this_checkout() -> None:
    # An installation with copied files would shadow this checkout.
    assert Path(cli.__file__) == ROOT / "cli.py"
    version = PROJECT["project"]["version"]
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"version: {version}" in citation
    assert re.search(r"^date-released: \d{4}-\d\d-\d\d$", citation, re.MULTILINE)
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text()
    # Only tested Python versions are claimed.
    claimed = [c for c in PROJECT["project"]["classifiers"] if "Python :: 3." in c]
    versions = ("3.11", "3.12", "3.13")
    assert claimed == [f"Programming Language :: Python :: {version}" for version in versions]
    lowest = (ROOT / ".ci/lowest").read_text()
    tried = re.findall(r"^try (?:demo|suite) (\S+)$", lowest, re.M)
    assert {*versions} <= {*tried}


def test_pickle_and_heavy_rooms_are_never_imported() -> None:
    """Nothing unpickles files, and the zoo imports only the light rooms."""
    imports = r"^ *(import|from) (pickle|dill|cloudpickle|shelve)\b"
    banned = re.compile(rf"{imports}|joblib\.load|from joblib import .*\bload\b", re.MULTILINE)
    for path in (ROOT / "cli.py", *ROOT.glob("obygaze_*/**/*.py")):
        assert not banned.search(path.read_text()), path
    light = {"annotations", "common", "errors", "items", "manifests", "page", "store"}
    light |= {"__init__", "__pycache__"}
    rooms = {path.stem for path in (ROOT / "obygaze_features").iterdir() if path.suffix != ".typed"}
    contracts = PROJECT["tool"]["importlinter"]["contracts"]
    contract = next(c for c in contracts if c.get("source_modules") == ["obygaze_models"])
    forbidden = {f"obygaze_features.{room}" for room in rooms - light}
    assert forbidden <= set(contract["forbidden_modules"])
