"""Batteries: what is shipped, and files of others."""

from __future__ import annotations

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
    names = [f"{one}, {how}" for one in ("angry", "sad", "happy") for how in ("high", "low")]
    assert [test.name for test in battery.tests] == names
    people = ["person", "woman", "human", "human being", "individual", "adult"]
    for test in battery.tests:
        emotion, intensity = test.name.split(", ")
        assert test.a == {"stimulus": tuple(f"{emotion} {one}" for one in people)}
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
        assert all(len(one["stimulus"]) == 6 for test in battery.tests for one in (test.a, test.b))


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


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ({"tests": []}, '"tests" is a list of one test or more'),
        ({"tests": [WEAT]}, "flowers: x: unknown set 'flowers'"),
        ({"tests": [{**WEAT, "x": ["a"]}] * 2}, "two tests are called 'flowers'"),
        ({"tests": [{"name": "t", "x": ["a"], "y": ["b"], "b": ["c"]}]}, "t: it has no set 'a'"),
        ({"tests": [{**WEAT, "x": [1]}]}, r"flowers: x is \[1\], and a list of texts is meant"),
        ({"tests": [{**WEAT, "z": []}]}, "test 'flowers': unknown key 'z'"),
        ({"tests": [{**WEAT, "x": {"film": 3}}]}, "flowers: x: film is 3, and a list of texts is"),
        ({"tests": [{**WEAT, "x": 3}]}, "flowers: x is 3, and an object of names is meant"),
        (
            {"tests": [{**WEAT, "x": ["a"], "published": {"CLIP": 1.0}}]},
            'flowers: published of CLIP is {"d": .., "significant": ..}',
        ),
        (
            {"tests": [{**WEAT, "x": ["a"], "published": {"C": {"d": 1, "significant": True}}}]},
            "flowers: published of C, which is not in models",
        ),
        ({"tests": [{**WEAT, "x": {}}]}, "flowers: x names no column, nor an id"),
        (
            {"tests": [WEAT], "sets": {"flower": ["a"]}},
            "flowers: x: unknown set 'flowers'; did you",
        ),
        ({"tests": [{**WEAT, "name": ""}]}, "a test's name is '', and a text is meant"),
        ({"format": "csv"}, 'is not a battery: its "format" is not "obygaze-battery"'),
        ({"format_version": 2}, "has format version 2, this obygaze reads up to 1"),
        ({"test": []}, "battery: unknown key 'test'; did you mean tests"),
    ],
)
def test_broken_batteries_are_one_line(tmp_path, content, line):
    path = write(tmp_path, **content)
    with pytest.raises(BiasError, match=line) as raised:
        read_battery(path)
    assert str(raised.value).startswith(f"{path}")
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
    ("selector", "tables", "line"),
    [
        ({"job": ("ceo", "nurse")}, [TABLE], "no item has the job 'nurse'"),
        ({"job": ("cook",), "who": ("woman",)}, [TABLE], "no item has the job 'cook' where who is"),
        ({"age": ("9",)}, [TABLE], "no column age beside id, job, who; give the manifest that has"),
        ({"age": ("9",)}, [], "no column age is known of these embeddings"),
    ],
)
def test_a_set_that_lacks_a_part_is_refused(selector, tables, line):
    with pytest.raises(BiasError, match=line):
        select(selector, tables)
