"""Importers: a file and a line each; commands and errors of importers of other packages."""

import inspect
import json
import re
from pathlib import Path

import pytest

import obygaze_features as of
from obygaze_features.annotations import Timelines
from obygaze_features.common.importers import importers_of
from obygaze_features.manifests import Manifest
from tests.kit.files import refused, touch, write

GROUP = "obygaze.importers"
HEAD = """
from pathlib import Path
import click
import obygaze_features as of
from obygaze_features.annotations import Segment
from obygaze_features.errors import ManifestError
from obygaze_features.manifests import Item, Items, Split
"""
SCENES = f'''{HEAD}
@click.command()
@click.argument("source", type=click.Path(exists=True, path_type=Path))
@click.option("--film", required=True, help="Its film.")
@click.option("--first", type=int)
@click.option("--gap", type=float)
@click.option("--upper/--no-upper")
def import_manifest(source: Path, film: str, first: int = 1, gap: float | None = None,
                    upper: bool = False) -> of.Manifest:
    """A file with a clip a line.

    Lines are names.
    """
    names = source.read_text().split()[first - 1:]
    names = [name.upper() if upper else name for name in names]
    items = [Item(name, film=film, media=f"{{name}}.mp4") for name in names]
    return of.Manifest("scenes", Items.of(items), notes=[f"first {{first}}, gap {{gap!r}}"])
'''
MARKS = f'''{HEAD}
@click.command()
@click.argument("source", type=click.Path(path_type=Path))
@click.option("--level", default="S")
def import_timelines(source, level):
    """Marks of one annotator."""
    spans = [line.split() for line in source.read_text().splitlines()]
    return of.Timelines.of("marks", [Segment("juno", "ann", float(a), float(b), level)
                                     for a, b in spans])
'''
POINTS = {"scenes": "mylab.scenes:import_manifest", "marks": "mylab.marks:import_timelines"}


@pytest.fixture
def mylab(install, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("scenes.txt").write_text("a\nb\nc\n")
    Path("marks.txt").write_text("0 2\n5 8.5\n")
    return install({"scenes.py": SCENES, "marks.py": MARKS}, POINTS, group=GROUP)


@pytest.mark.parametrize("owner", [of.Manifest, of.Timelines])
def test_adding_an_importer_takes_a_file_and_a_line(owner, obygaze):
    """Its command, with help and options, and its method are derived from them."""
    group = {of.Manifest: "manifests", of.Timelines: "annotations"}[owner]
    importers, function = importers_of(owner), f"import_{owner.__name__.lower()}"
    folder = Path(inspect.getfile(owner)).parent / "importers"
    files = {path.stem for path in folder.glob("*.py") if f"def {function}(" in path.read_text()}
    assert {importer.file for importer in importers.values()} == files
    listed = obygaze(group, "import", "--help").stdout
    for name, importer in importers.items():
        assert f"\n  {name} " in listed
        method = getattr(owner, f"from_{name}")
        parameters = inspect.signature(method).parameters
        assert {param.name for param in importer.command.params} - {"renamed", "download"} == {
            *parameters
        }
        assert "Parameters\n" in method.__doc__
        assert not {"\b", "\f"} & {*method.__doc__}
        text = obygaze(group, "import", name, "--help").stdout
        assert "Examples:" in text
        assert "Parameters" not in text
    assert "[default: paper]" in obygaze("manifests", "import", "obygaze12", "--help").stdout


def test_importers_are_commands_with_options(mylab, obygaze):
    command = ("manifests", "import", "scenes", "scenes.txt", "--film", "juno")
    result = obygaze(*command)
    assert "3 clips of 1 film -> manifests/scenes" in result.output, result.output
    assert "first 1, gap None" in result.output
    assert "next, if you have labels: obygaze manifests label manifests/scenes" in result.output
    options = ["--first", "2", "--gap", ".5", "--upper", "-o", "other"]
    assert "gap 0.5" in obygaze(*command, *options).output
    assert Manifest.load("other").ids == ["B", "C"]
    refused(obygaze(*command, *options), "--overwrite")
    twice = obygaze(*command, "--first", "1", "--first", "2")
    refused(twice, "--first was given twice (1, 2)", code=2)
    missing = obygaze("manifests", "import", "scenes", "no.txt", "--film", "f")
    assert (missing.exit_code, "'no.txt' does not exist" in missing.output) == (2, True)
    command = ("annotations", "import", "marks", "marks.txt")
    assert obygaze(*command, "-o", "t", "--level", "HN").exit_code == 0
    segments = [(s.film, s.start, s.end, s.level) for s in Timelines.load("t").segments]
    assert segments == [("juno", 0, 2, "HN"), ("juno", 5, 8.5, "HN")]
    assert json.loads(obygaze(*command, "-o", "u", "--json").stdout)["segments"] == 2
    assert obygaze("manifests", *command[1:]).exit_code == 2
    text = obygaze("manifests", "import", "scenes", "--help").stdout
    for part in ("Lines are names.", "--film TEXT", "[required]", "--upper / --no-upper",
                 "This is mylab.scenes:import_manifest of mylab 0.1.0."):  # fmt: skip
        assert part in text
    assert text.count("--overwrite") == 1


def test_built_in_names_win_and_listing_imports_nothing(install, obygaze):
    install({"x.py": "raise OSError"}, {"folder": "mylab.x:import_manifest"}, group=GROUP)
    text = obygaze("manifests", "import", "--help").stdout
    assert re.search(r"folder +mylab.x:import_manifest of mylab 0.1.0 \(ignored: thi", text)
    assert "SOURCE contains the files" in obygaze("manifests", "import", "folder", "--help").stdout


def test_importers_are_named_by_path(install, tmp_path, obygaze):
    films = touch(tmp_path / "films", "one/a.mp4", "one/b.avi")
    path = "obygaze_features.manifests.importers.folder:import_manifest"
    for name in ("folder", path):
        options = (films, "--ids", "names", "-o", tmp_path / name)
        assert obygaze("manifests", "import", name, *options).exit_code == 0
    ours, named = (Manifest.load(tmp_path / name) for name in ("folder", path))
    assert (ours.name, ours.digest) == (named.name, named.digest)
    read = "class Scenes:\n  read = import_manifest\n"
    install({"scenes.py": SCENES + read})
    where = (write(tmp_path / "s.txt", "a"), "--film", "x", "-o", tmp_path / "m")
    obygaze("manifests", "import", "mylab.scenes:Scenes.read", *where, code=0)
    result = obygaze("annotations", "import", "nowhere.at_all:load", "x", "-o", "y")
    refused(result, "nowhere.at_all:load cannot be imported", "Install its package")


COMMAND, LOAD = f"{HEAD}\n@click.command()\n@click.argument('source')", "def load(source)"
#: A module, and the line that its importer's command ends with.
BROKEN = {
    "raise OSError('no\\ngo')": r"mylab.x:load of mylab 0.1.0: OSError: no go \(mylab/x.py:1\)",
    "load = 3": "mylab.x:load of mylab 0.1.0 is not a click command",
    "def load(source): pass": r"is not a click command; put @click.command\(\) above it",
    f"{COMMAND}\n@click.option('--output')\n{LOAD}: pass": "x: a built-in option is also called",
    f"{COMMAND}\n{LOAD}: return {{}}['key']": r"mylab 0.1.0: KeyError: 'key' \(mylab/x.py:11\)",
    f"{COMMAND}\n{LOAD}: return []": r"x:load of mylab 0.1.0 must return a Manifest \(got list\)",
    f"{COMMAND}\n{LOAD}: return of.Manifest('x', Items.of([]))": "has no items",
    f"{COMMAND}\n{LOAD}: return of.Manifest('x', [1])": r"x:load of mylab 0.1.0: AttributeError: ",
    f"{COMMAND}\n{LOAD}: return of.Manifest('x', Items.of([Item('a')]), licence=5)": (
        "a Manifest that cannot be read: manifest.json: licence must be a string"
    ),
    f"{COMMAND}\n{LOAD}: return of.Manifest('x', Items.of([Item('a')])).with_parts("
    "splits=[Split('s', ['b'], [0])])": "cannot be read: splits/s.csv, line 2: id 'b'",
    f"{COMMAND}\n{LOAD}: raise ManifestError('line 3: no film')": "Error: line 3: no film",
}


@pytest.mark.parametrize("code", BROKEN)
def test_a_broken_importer_is_one_line(code, install, tmp_path, monkeypatch, obygaze):
    monkeypatch.chdir(tmp_path)
    install({"x.py": code, "scenes.py": SCENES}, POINTS | {"x": "mylab.x:load"}, group=GROUP)
    Path("source.txt").touch()
    result = obygaze("manifests", "import", "x", "source.txt")
    refused(result)
    assert re.search(BROKEN[code], result.output)
    assert not Path("manifests").exists()
    # The others are not hurt.
    command = (write(tmp_path / "s.txt", "a"), "--film", "f")
    assert obygaze("manifests", "import", "scenes", *command).exit_code == 0
