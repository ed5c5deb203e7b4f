"""Importers of other packages: commands made of their functions, and what their errors do."""

import json
import re
from pathlib import Path

import pytest

from obygaze_features.annotations import Timelines
from obygaze_features.manifests import Manifest
from tests.kit.files import refused, touch, write

GROUP = "obygaze.importers"
HEAD = """
from pathlib import Path
import obygaze_features as of
from obygaze_features.annotations import Segment
from obygaze_features.errors import ManifestError
from obygaze_features.manifests import Item, Items
"""
SCENES = f'''{HEAD}
def import_manifest(source: Path, *, film: str, first: int = 1, gap: float | None = None,
                    upper: bool = False, table: dict[str, str] | None = None) -> of.Manifest:
    """A file with a clip a line.

    Lines are names.

    Parameters
    ----------
    film
        Its film.
    """
    names = source.read_text().split()[first - 1:]
    names = [name.upper() if upper else name for name in names]
    items = [Item(name, film=film, media=f"{{name}}.mp4") for name in names]
    return of.Manifest("scenes", Items.of(items), notes=[f"gap {{gap!r}}, table {{table}}"])
'''
MARKS = f'''{HEAD}
def import_timelines(source, level="S"):
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


def test_importers_are_commands_with_options(mylab, obygaze):
    command = ("manifests", "import", "scenes", "scenes.txt", "--film", "juno")
    result = obygaze(*command)
    assert "3 clips of 1 film -> manifests/scenes" in result.output, result.output
    assert "gap None, table None" in result.output
    assert "next, if you have labels: obygaze manifests label manifests/scenes" in result.output
    options = ["--first", "2", "--gap", ".5", "--upper", "-o", "other"]
    assert "gap 0.5" in obygaze(*command, *options).output
    assert Manifest.load("other").ids == ["B", "C"]
    refused(obygaze(*command, *options), "--overwrite")
    refused(obygaze("manifests", "import", "scenes", "no.txt", "--film", "f"), "no.txt does not ex")
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
    assert "--table" not in text


def test_our_name_wins_and_listing_imports_nothing(install, obygaze):
    install({"x.py": "raise OSError"}, {"folder": "mylab.x:import_manifest"}, group=GROUP)
    text = obygaze("manifests", "import", "--help").stdout
    assert re.search(r"folder +mylab.x:import_manifest of mylab 0.1.0 \(ignored: ano", text)
    assert "SOURCE has them" in obygaze("manifests", "import", "folder", "--help").stdout


def test_importers_by_their_paths(install, tmp_path, obygaze):
    films = touch(tmp_path / "films", "one/a.mp4", "one/b.avi")
    path = "obygaze_features.manifests.importers.folder:import_manifest"
    for name in ("folder", path):
        options = (films, "--ids", "names", "-o", tmp_path / name)
        assert obygaze("manifests", "import", name, *options).exit_code == 0
    ours, named = (Manifest.load(tmp_path / name) for name in ("folder", path))
    assert (ours.name, ours.digest) == (named.name, named.digest)
    read = "class Scenes:\n  read = staticmethod(import_manifest)\n"
    install({"scenes.py": SCENES + read})
    where = (write(tmp_path / "s.txt", "a"), "--film", "x", "-o", tmp_path / "m")
    obygaze("manifests", "import", "mylab.scenes:Scenes.read", *where, code=0)
    result = obygaze("annotations", "import", "nowhere.at_all:load", "x", "-o", "y")
    refused(result, "nowhere.at_all:load cannot be imported", "Install its package")


#: A module, and the line that its importer's command ends with.
BROKEN = {
    "raise OSError('no\\ngo')": r"mylab.x:load of mylab 0.1.0: OSError: no go \(mylab/x.py:1\)",
    "load = 3": "mylab.x:load of mylab 0.1.0 is not a function",
    "def load(source, names: list[str]): pass": "its parameter names is a list.*; an option is a",
    "def load(source, output=''): pass": "its parameter output has the name of an option of ours",
    "def load(source): return {}['key']": r"mylab 0.1.0: KeyError: 'key' \(mylab/x.py:1\)",
    "def load(source): return []": "mylab.x:load of mylab 0.1.0 returned a list, not a Manifest",
    f"{HEAD}\ndef load(source): return of.Manifest('x', Items.of([]))": "holds no items",
    f"{HEAD}\ndef load(source): raise ManifestError('line 3: no film')": "Error: line 3: no film",
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
