"""Bad tables, folders, lexicons, batteries and options: one line with the fact, nothing written."""

import json

import pytest

from tests.kit.clips import sets
from tests.kit.files import refused, write

CLASSES = "drawings,hentai,neutral,porn,sexy"
HEADER = "image_id,condition,emotion,caption\n"
SCORED = "object,group,probability,similarity,confidence\n"

#: Command, its table, the fact.
TABLES = [
    ("captions", HEADER + "a,O,HA,x\nb,objectifed,HA,x\n", "line 3: unknown condition 'object"),
    ("captions", HEADER + "a,O,HA,x\n,O,HA,x\n", "line 3: the image_id is missing"),
    ("gender-score", SCORED + "a,man,.5,0,.5\na,man,.5,-1,.5\n", "line 3: similarity -1 has no"),
    ("gender-score", SCORED + "a,man,.5,0,0_1\n", "confidence '0_1' is not a number"),
    ("gender-score", SCORED + "a,wman,.5,0,.5\n", "unknown group 'wman'; did you mean woman?"),
    ("gender-score", "P(c),P_man,sim_man\n.5,.5,0\n", "'probability_woman', 'similarity_woman'"),
    ("gender-score", "caption,P,sim,P(c)\na dog,.125,0,.5\n", "no caption names a man or a woman"),
    ("ratings", "image_id,group,ann\na,x,nude\n", "line 2: unknown label 'nude' of ann"),
    ("ratings", "image_id,group,subject\na,x,Eve\n", "--rater NAME"),
    ("ratings", "image_id,group,ann\na,x,1\na,x,0\n", "line 3: duplicate image_id 'a'"),
    ("ratings", f"image_id,group,{CLASSES}\na,x,0,0,1.5,0,0\n", "neutral 1.5 is not from 0 to 1"),
    ("ratings", f"image_id,group,{CLASSES}\na,x,0,0,0,0,0\n", "line 2: all probabilities are 0"),
    ("ratings", f"image_id,group,classifier,{CLASSES}\na,x,1,0,0,1,0,0\n", "rename the column"),
    ("ratings --rater cmn", "image_id,group,cnn\na,x,1\n", "did you mean cnn?"),
]  # fmt: skip


@pytest.mark.parametrize(("command", "text", "fact"), TABLES, ids=[slip[2] for slip in TABLES])
def test_bad_tables_are_one_line(command, text, fact, tmp_path, obygaze):
    source = write(tmp_path / "table.csv", text, end="")
    name, *options = command.split()
    result = obygaze("bias", name, source, *options, "-o", tmp_path / "out.csv")
    refused(result, fact)
    assert not (tmp_path / "out.csv").exists()


FOLDERS = [
    ("notes.txt", b"x", "the name gives no group"),
    ("ann_XY1_O_1.txt", b"x", "unknown emotion 'XY'"),
    ("ann_HA1_O_1.txt", b"\n \n", "no captions"),
    ("ann_HA1_O_1.txt", b"smile\xff\n", "is not UTF-8 (byte 5)"),
    ("readme.md", b"x", "no .txt files"),
]


@pytest.mark.parametrize(("name", "content", "fact"), FOLDERS)
def test_bad_folders_of_captions_are_one_line(name, content, fact, tmp_path, obygaze):
    (tmp_path / name).write_bytes(content)
    refused(obygaze("bias", "captions", tmp_path), fact)


HEAD = {"format": "obygaze-lexicon", "format_version": 1, "name": "own", "groups": {}}
BATTERY = {"format": "obygaze-battery", "format_version": 1}
TEST = {"name": "flowers", "x": "flowers", "y": ["ant", "wasp"], "a": ["love"], "b": ["hatred"]}
X = {**TEST, "x": ["a"]}
LEXICONS = [
    ({"words": {}}, 'is not a lexicon: its "format" is not "obygaze-lexicon"'),
    (HEAD | {"word": {}}, "unknown key 'word'; did you mean words"),
    (HEAD | {"words": {"a": ["blue sea"]}}, "'blue sea' is not one token"),
    (HEAD | {"words": {"a": ["sea"]}}, "the lexicon own is not for captions"),
]
BATTERIES = [
    (BATTERY | {"tests": [TEST], "sets": {"flower": ["a"]}}, "did you mean flower?"),
    (BATTERY | {"tests": [X] * 2}, "two tests"),
    (BATTERY | {"tests": [{**TEST, "x": {"film": 3}}]}, "`$.x[...]`"),
    (BATTERY | {"tests": [{**X, "published": {"C": {"d": 1, "significant": True}}}]}, "models"),
    (BATTERY | {"tests": [{**TEST, "x": {}}]}, "x is empty"),
    ("cut", "is not valid JSON"),
]


@pytest.mark.parametrize(("content", "fact"), [*LEXICONS, *BATTERIES])
def test_bad_lexicons_and_batteries_are_one_line(content, fact, tmp_path, obygaze):
    text = '{"format": ' if content == "cut" else json.dumps(content)
    path = write(tmp_path / "own.json", text)
    if (content, fact) in LEXICONS:
        result = obygaze("bias", "captions", tmp_path, "--lexicon", path)
    else:
        store = write(tmp_path / "words.vec", "a 1 0")
        result = obygaze("bias", "eat", path, "--store", store)
    refused(result, fact)
    assert fact.startswith("the lexicon") or str(path) in result.stderr


VECTORS = [
    ("a.vec", "rose 1 2\nlily 1\n", "a.vec, line 2: 1 number where 'rose' has 2"),
    ("a.vec", "rose 1 2\nrose 1 3\n", "a.vec, line 2: 'rose' occurs twice"),
    ("a.vec", "", "a.vec is empty; each line is a name and its numbers"),
    ("a.csv", "rose,1,2\n", "a.csv, line 1: no header; name the first column id"),
    ("a.csv", "id,0,1\nrose,1,0\nlily,0,1\nant,0,0\nwasp,1,1\n", "'ant', of A, has length zero"),
    ("words.txt", "rose 1 2\n", "words.txt: embeddings are read from NAME.vec"),
    ("b.csv", None, "b.csv"),
]


@pytest.mark.parametrize(("name", "text", "fact"), VECTORS)
def test_bad_embeddings_are_one_line(name, text, fact, tmp_path, obygaze):
    path = tmp_path / name
    if text is not None:
        write(path, text, end="")
    groups = dict(zip("xyab", ("rose", "lily", "ant", "wasp"), strict=True))
    refused(obygaze("bias", "eat", "--store", path, *sets(**groups)), fact)


W, M = "science-woman-", "science-man-"
OPTIONS = [
    (["emotion", "--sets", "x=a"], 2, ["not both"]),
    (["emotoin"], 1, ["unknown battery 'emotoin'; did you mean emotion?"]),
    (["emotion"], 1, ["angry, high", "emotion, intensity, condition", "id, kind"]),
    (sets(x="a", y="b", a="c"), 2, ["--sets b=SET"]),
    (sets(x="a,film:b", y="b", a="c", b="d"), 2, ["a,film:b", "COLUMN:VALUE|VALUE"]),
    (sets(x="@no.txt", y="b", a="c", b="d"), 2, ["no.txt", "No such file"]),
    (sets(x=W + "0", y=W + "0", a=M + "0", b=M + "1"), 1, ["X and Y", "'science-woman-0'"]),
    (sets(x=f"{W}0,{W}9", y=W + "1", a=M + "0", b=M + "1"), 1,
     ["1 of the 2 items of X", "{store}", "'science-woman-9'", "--skip-missing"]),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "code", "facts"), OPTIONS)
def test_bad_options_of_eat_are_one_line(obygaze, images, arguments, code, facts):
    arguments = [word.replace("{store}", str(images.store)) for word in arguments]
    result = obygaze("bias", "eat", "--store", images.store, *arguments)
    refused(result, *(fact.replace("{store}", str(images.store)) for fact in facts), code=code)
