"""Batteries: what is shipped, and files of others."""

import json

import pytest

from obygaze_features.errors import BiasError
from obygaze_models.bias.battery import SHIPPED, AssociationTest, Published, read_battery, select
from tests.kit.embeddings import STIMULI
from tests.kit.files import write

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
    assert battery.tests[2].published == BUSINESS
    for name in SHIPPED:  # thirty prompts a side
        battery = read_battery(name)
        assert len(battery.templates) == 5
        sides = [side for test in battery.tests for side in (test.a, test.b)]
        assert {len(side["stimulus"]) for side in sides} == {6}
    battery = read_battery("professions")
    assert battery.model_of("clip-vit-base-patch16") == "CLIP ViT-B/16"
    assert battery.model_of("xclip-kinetics") is None


def test_batteries_of_others(tmp_path):
    groups = {"x": "flowers", "y": ["ant", "wasp"], "a": ["love"], "b": ["hatred"]}
    content = {
        "format": "obygaze-battery", "format_version": 1, "sets": {"flowers": ["rose", "lily"]},
        "tests": [{"name": "flowers", **groups}],
    }  # fmt: skip
    battery = read_battery(write(tmp_path / "mine.json", json.dumps(content)))
    test = AssociationTest("flowers", ("rose", "lily"), ("love",), ("hatred",), ("ant", "wasp"))
    assert (battery.name, battery.tests) == ("mine", (test,))


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
