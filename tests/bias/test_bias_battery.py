"""Batteries: what is shipped, and files of others."""

import json

import pytest

from obygaze_features.errors import BiasError
from obygaze_models.bias.battery import SHIPPED, AssociationTest, Published, read_battery, select
from tests.bias.embeddings import STIMULI

#: As the paper's tables have them, d and whether p < .05.
ANGRY_HIGH = {
    "CLIP ViT-B/32": Published(1.09, True),
    "CLIP ViT-B/16": Published(1.26, True),
    "CLIP ViT-L/14": Published(0.26, False),
    "OpenCLIP ViT-B/32": Published(1.37, True),
}
BUSINESS = {
    "CLIP ViT-B/32": Published(1.03, True),
    "CLIP ViT-B/16": Published(0.76, True),
    "CLIP ViT-L/14": Published(0.68, True),
}


def test_emotions_by_two_intensities():
    battery = read_battery("emotion")
    names = [f"{entry}, {how}" for entry in ("angry", "sad", "happy") for how in ("high", "low")]
    assert [test.name for test in battery.tests] == names
    people = ["person", "woman", "human", "human being", "individual", "adult"]
    for test in battery.tests:
        emotion, intensity = test.name.split(", ")
        assert test.a == {"stimulus": tuple(f"{emotion} {entry}" for entry in people)}
        assert test.b == {"stimulus": tuple(people)}
        shown = {"emotion": (emotion,), "intensity": (intensity,)}
        assert test.x == {**shown, "condition": ("non-objectified",)}
        assert test.y == {**shown, "condition": ("objectified",)}
    assert {test.name: test.published for test in battery.tests if test.published} == {
        "angry, high": ANGRY_HIGH
    }
    assert set(battery.models) == set(ANGRY_HIGH)


def test_three_professions():
    battery = read_battery("professions")
    assert [test.name for test in battery.tests] == ["science", "medicine", "business"]
    for test in battery.tests:
        assert test.x == {"profession": (test.name,), "gender": ("woman",)}
        assert test.y == {"profession": (test.name,), "gender": ("man",)}
        assert test.a == {"stimulus": STIMULI["objectifying"]}
        if test.name in STIMULI:
            assert test.b == {"stimulus": STIMULI[test.name]}
        assert len(test.b["stimulus"]) == 6
    assert battery.tests[2].published == BUSINESS
    assert battery.model_of("clip-vit-base-patch16") == "CLIP ViT-B/16"
    assert battery.model_of("xclip-kinetics") is None


def test_thirty_prompts_a_side():
    for name in SHIPPED:
        battery = read_battery(name)
        assert len(battery.templates) == 5
        assert all(
            len(words["stimulus"]) == 6 for test in battery.tests for words in (test.a, test.b)
        )


def write(tmp_path, **content):
    path = tmp_path / "mine.json"
    whole = {"format": "obygaze-battery", "format_version": 1, **content}
    path.write_text(json.dumps(whole))
    return path


WEAT = {"name": "flowers", "x": "flowers", "y": ["ant", "wasp"], "a": ["love"], "b": ["hatred"]}


def test_a_battery_of_others(tmp_path):
    path = write(tmp_path, sets={"flowers": ["rose", "lily"]}, tests=[WEAT])
    battery = read_battery(path)
    test = AssociationTest("flowers", ("rose", "lily"), ("love",), ("hatred",), ("ant", "wasp"))
    assert (battery.name, battery.tests) == ("mine", (test,))


X = {**WEAT, "x": ["a"]}


@pytest.mark.parametrize(
    ("content", "facts"),
    [
        ({"tests": []}, ["tests"]),
        ({}, ["tests"]),
        ({"tests": [WEAT]}, ["flowers", "x: unknown set 'flowers'"]),
        ({"tests": [WEAT], "sets": {"flower": ["a"]}}, ["did you mean flower?"]),
        ({"tests": [X] * 2}, ["'flowers'", "two tests"]),
        ({"tests": [{"name": "t", "x": ["a"], "y": ["b"], "b": ["c"]}]}, ["'t'", "`a`"]),
        ({"tests": [{**WEAT, "x": [1]}]}, ["'flowers'", "`$.x[0]`", "`int`"]),
        ({"tests": [{**WEAT, "z": []}]}, ["'flowers'", "unknown key 'z'"]),
        ({"tests": [{**X, "publishd": {}}]}, ["'flowers'", "did you mean published?"]),
        ({"tests": [{**WEAT, "x": {"film": 3}}]}, ["'flowers'", "`$.x[...]`", "`int`"]),
        ({"tests": [{**WEAT, "x": 3}]}, ["'flowers'", "`$.x`", "`int`"]),
        ({"tests": [{**X, "published": {"CLIP": 1.0}}]}, ["'flowers'", "`$.published[...]`"]),
        (
            {"tests": [{**X, "published": {"C": {"d": 1, "significant": True}}}]},
            ["'flowers'", "C", "models"],
        ),
        ({"tests": [{**WEAT, "x": {}}]}, ["'flowers'", "x is empty"]),
        ({"tests": [{**WEAT, "name": ""}]}, ["`$.name`"]),
        ({"format": "csv"}, ["obygaze-battery"]),
        ({"format_version": 2}, ["version 2"]),
        ({"test": []}, ["unknown key 'test'; did you mean tests"]),
    ],
)
def test_broken_batteries_are_one_line(tmp_path, content, facts):
    path = write(tmp_path, **content)
    with pytest.raises(BiasError) as raised:
        read_battery(path)
    assert str(raised.value).startswith(f"{path}")
    assert all(fact in str(raised.value) for fact in facts), raised.value
    assert "\n" not in str(raised.value)


def test_a_battery_that_is_nowhere(tmp_path):
    with pytest.raises(BiasError, match="unknown battery 'emotoin'; did you mean emotion"):
        read_battery("emotoin")
    (tmp_path / "cut.json").write_text('{"format": ')
    with pytest.raises(BiasError, match=r"cut\.json is not valid JSON"):
        read_battery(tmp_path / "cut.json")


TABLE = {"id": ["1", "2", "3"], "job": ["ceo", "ceo", "cook"], "who": ["woman", "man", "man"]}


def test_items_are_selected_by_columns():
    assert select({"job": ("ceo",), "who": ("man",)}, [TABLE]) == ["2"]
    assert select({"job": ("cook", "ceo")}, [{"id": ["9"], "who": ["man"]}, TABLE]) == [*"123"]
    assert select(("b", "a"), []) == ["b", "a"]


@pytest.mark.parametrize(
    ("selector", "tables", "facts"),
    [
        ({"job": ("ceo", "nurse")}, [TABLE], ["job", "'nurse'"]),
        ({"job": ("cook",), "who": ("woman",)}, [TABLE], ["job", "'cook'", "where who is woman"]),
        ({"age": ("9",)}, [TABLE], ["no column age", "id, job, who", "--manifest"]),
        ({"age": ("9",)}, [], ["no column age", "--manifest"]),
    ],
)
def test_a_set_that_lacks_a_part_is_refused(selector, tables, facts):
    with pytest.raises(BiasError) as raised:
        select(selector, tables)
    assert all(fact in str(raised.value) for fact in facts), raised.value
