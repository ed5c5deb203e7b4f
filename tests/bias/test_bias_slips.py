"""User errors in tables, folders, batteries and options: one line, nothing written."""

from pathlib import Path

import pytest

from tests.kit.clips import write_battery
from tests.kit.files import refused, write

SCORED = "object,group,probability,similarity,confidence"
CLASSES = "image_id,group,drawings,hentai,neutral,porn,sexy"
VARIANTS = "confidence,probability_man,similarity_man\n.5,.5,0"
#: Command, the file that it is given, its text, and the fact.
TABLES = [
    ("captions", "t.csv", "image_id,condition,emotion,caption\n,O,HA,x", "line 2: the image_id"),
    ("captions", "f/notes.txt", "x", "notes.txt: no group"),
    ("captions", "f/ann_HA1_O_1.txt", "\n ", "no captions"),
    ("gender-score", "t.csv", f"{SCORED}\na,man,.5,0,0_1", "confidence must be a number"),
    ("gender-score", "t.csv", f"{SCORED}\na,man,.5,-1,1", "similarity above -1"),
    ("gender-score", "t.csv", f"{SCORED}\na,wman,.5,0,.5", "did you mean woman?"),
    ("gender-score", "t.csv", VARIANTS, "no column 'probability_woman'"),
    ("gender-score", "t.csv", "caption\na dog", "no caption mentions a man"),
    ("ratings", "t.csv", "image_id,group,ann,ben", "has no labels"),
    ("ratings", "t.csv", "image_id,group,ann\na,x,nude", "line 2: unknown label 'nude' of ann"),
    ("ratings", "t.csv", f"{CLASSES}\na,x,0,0,0,0,0", "line 2: all probabilities are 0"),
    ("ratings", "t.csv", f"{CLASSES},classifier\na,x,0,0,1,0,0,1", "Rename it"),
    ("ratings --rater cmn", "t.csv", "image_id,group,cnn\na,x,1", "did you mean cnn?"),
    ("eat own.json --store", "a.vec", "rose 1 2\nrose 1 3", "line 2: duplicate name 'rose'"),
    ("eat own.json --texts narrow.csv --store", "a.vec", "rose 1 2\nlily 1 3", "'Y': 2, 'A': 1"),
]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_battery(Path("own.json"), x=["rose"], y=["lily"], a=["ant"], b=["wasp"])
    write(Path("narrow.csv"), "id,0", "ant,1", "wasp,2")


@pytest.mark.parametrize(("command", "name", "text", "fact"), TABLES)
def test_bad_tables_and_folders_are_one_line(command, name, text, fact, obygaze):
    file = Path(name)
    file.parent.mkdir(exist_ok=True)
    file.write_text(text)
    result = obygaze("bias", *command.split(), file.parts[0], "-o", "out.csv")
    refused(result, fact)
    assert not Path("out.csv").exists()


MAN = {"a": ["science-man-0"], "b": ["science-man-1"]}
BATTERIES = [
    ({"x": ["science-woman-0"], "y": ["science-woman-0"]}, "'science-woman-0' of set Y"),
    ({"x": ["science-woman-0", "nobody"], "y": ["science-woman-1"]}, "(such as 'nobody')"),
    ({"x": {"gender": "wman"}}, "has the gender 'wman'"),
    ({"x": "flowers"}, "unknown set 'flowers'"),
]


@pytest.mark.parametrize(("sets", "fact"), BATTERIES)
def test_bad_sets_are_one_line(sets, fact, obygaze, images):
    write_battery(Path("own.json"), **MAN | sets)
    refused(obygaze("bias", "eat", "own.json", "--store", images.store), fact)


def test_an_unknown_battery_or_output_is_one_line(obygaze, images):
    words = ("bias", "eat", "emotoin", "--store", images.store)
    refused(obygaze(*words), "did you mean emotion?")
    refused(obygaze(*words, "-o", "out.txt"), "out.txt", code=2)
