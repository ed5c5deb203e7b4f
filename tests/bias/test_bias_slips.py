"""User errors in tables, folders, lexicons, batteries and options: one line, nothing written."""

import json
from pathlib import Path

import pytest

from tests.kit.clips import write_battery
from tests.kit.files import refused, write

CLASSES = "drawings,hentai,neutral,porn,sexy"
HEADER = "image_id,condition,emotion,caption\n"
SCORED = "object,group,probability,similarity,confidence\n"

HEAD = {"format": "obygaze-lexicon", "format_version": 1, "name": "own", "groups": {}}
BATTERY = {"format": "obygaze-battery", "format_version": 1}
TEST = {"name": "flowers", "x": "flowers", "y": ["ant", "wasp"], "a": ["love"], "b": ["hatred"]}
#: Command with the file that it is given -> what is in the file, and the fact.
SLIPS = {
    "captions t.csv": [(HEADER + "a,O,HA,x\n,O,HA,x\n", "line 3: the image_id is missing")],
    "gender-score t.csv": [
        (SCORED + "a,man,.5,0,0_1\n", "confidence must be a number from 0 to 1 (got '0_1')"),
        (SCORED + "a,wman,.5,0,.5\n", "unknown group 'wman'; did you mean woman?"),
        ("confidence,probability_man,similarity_man\n.5,.5,0\n", "no column 'probability_woman'"),
        ("caption,probability,similarity,confidence\na dog,.1,0,.5\n", "no caption mentions a man"),
    ],
    "ratings t.csv": [
        ("image_id,group,ann,ben\n", "has no labels"),
        ("image_id,group,ann\na,x,nude\n", "line 2: unknown label 'nude' of ann"),
        ("image_id,group,ann\na,x,1\na,x,0\n", "line 3: duplicate id 'a'"),
        (
            f"image_id,group,{CLASSES}\na,x,0,0,1.5,0,0\n",
            "neutral must be a number from 0 to 1 (got '1.5')",
        ),
        (f"image_id,group,{CLASSES}\na,x,0,0,0,0,0\n", "line 2: all probabilities are 0"),
        (f"image_id,group,classifier,{CLASSES}\na,x,1,0,0,1,0,0\n", "Rename it"),
    ],
    "ratings t.csv --rater cmn": [("image_id,group,cnn\na,x,1\n", "did you mean cnn?")],
    "captions f/notes.txt": [("x", "no group in the file name")],
    "captions f/ann_HA1_O_1.txt": [
        ("\n \n", "no captions"),
        ("smile\udcff\n", "is not UTF-8: 'utf-8' codec can't decode byte 0xff in position 5"),
    ],
    "captions f --lexicon own.json": [
        (HEAD | {"format": "x", "words": {"a": []}}, "Invalid enum value 'x' - at `$.format`"),
        (HEAD | {"words": {"a": ["blue sea"]}}, "'blue sea' is not a single token"),
    ],
    "eat own.json --store words.vec": [
        (BATTERY | {"tests": [TEST], "sets": {"flower": ["a"]}}, "did you mean flower?"),
    ],
    "eat own.json --store a.vec": [
        ("rose 1 2\nrose 1 3\n", "a.vec, line 2: duplicate name 'rose'"),
        ("rose 1 x\n", "a.vec, line 1 could not convert string to float: 'x'"),
    ],
    "eat own.json --store words.txt": [("rose 1 2\n", "words.txt")],
}  # fmt: skip
ROWS = [(command, *row) for command, rows in SLIPS.items() for row in rows]


@pytest.mark.parametrize(("command", "content", "fact"), ROWS)
def test_user_errors_are_one_line(command, content, fact, tmp_path, monkeypatch, obygaze):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "words.vec", "a 1 0")
    write_battery(tmp_path / "own.json", x=["rose"], y=["lily"], a=["ant"], b=["wasp"])
    names = [word for word in command.split() if "." in word]
    file = tmp_path / names[-1 if names[-1] != "words.vec" else 0]
    text = content if isinstance(content, str) else json.dumps(content)
    write(file, end="").write_bytes(text.encode(errors="surrogateescape"))
    words = [word.partition("/")[0] for word in command.split()]
    refused(obygaze("bias", *words, "-o", "out.csv"), fact)
    assert not Path("out.csv").exists()


W, M = "science-woman-", "science-man-"
OPTIONS = [
    ("emotoin", ["unknown battery 'emotoin'; did you mean emotion?"]),
    ({"x": [W + "0"], "y": [W + "0"], "a": [M + "0"], "b": [M + "1"]},
     ["'science-woman-0' of set Y is listed twice"]),
    ({"x": [W + "0", W + "9"], "y": [W + "1"], "a": [M + "0"], "b": [M + "1"]},
     ["given sets: items without an embedding: 1 (such as 'science-woman-9')", "skip missing"]),
    ({"x": {"gender": "wman"}, "a": [M + "0"], "b": [M + "1"]}, ["has the gender 'wman'"]),
]  # fmt: skip


@pytest.mark.parametrize(("battery", "facts"), OPTIONS)
def test_bad_sets_are_one_line(obygaze, images, battery, facts, tmp_path):
    if not isinstance(battery, str):
        battery = write_battery(tmp_path / "own.json", **battery)
    refused(obygaze("bias", "eat", battery, "--store", images.store), *facts)
