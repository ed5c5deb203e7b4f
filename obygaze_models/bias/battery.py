"""Batteries: association tests in a JSON file, run as one; manifests/README.md has the format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from obygaze_features.common.files import check_format, read_json
from obygaze_features.common.package import reference_file
from obygaze_features.common.text import join_some, shorten, unknown_name
from obygaze_features.errors import BiasError

__all__ = [
    "SHIPPED",
    "AssociationTest",
    "Battery",
    "Published",
    "Selector",
    "read_battery",
    "select",
]

FORMAT = "obygaze-battery"
FORMAT_VERSION = 1
SHIPPED = ("emotion", "professions")
"""The batteries that come with obygaze, by name."""

#: Ids, or for each column the values that an item may have there.
Selector = tuple[str, ...] | Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class Published:
    """An effect size that others have found, and whether it was significant (p < .05)."""

    d: float
    significant: bool


@dataclass(frozen=True)
class AssociationTest:
    """One association test; without a y each item of x is tested alone."""

    name: str
    x: Selector
    a: Selector
    b: Selector
    y: Selector | None = None
    published: Mapping[str, Published] = field(default_factory=dict)

    @property
    def sets(self) -> dict[str, Selector]:
        """The sets by their names X, Y, A and B."""
        of = {"X": self.x, "Y": self.y, "A": self.a, "B": self.b}
        return {name: one for name, one in of.items() if one is not None}


@dataclass(frozen=True)
class Battery:
    """Tests that belong together.

    `templates` are what prompts were made with, from the stimuli that sets name. `models` has
    for each model that figures were published of the names of the backbones that it is here.
    """

    name: str
    tests: tuple[AssociationTest, ...]
    source: Mapping[str, Any] = field(default_factory=dict)
    models: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    templates: tuple[str, ...] = ()

    def model_of(self, backbone: str) -> str | None:
        """The published model that a store's backbone is."""
        return next((one for one, names in self.models.items() if backbone in names), None)


def read_battery(name: str | Path) -> Battery:
    """A battery of that file, or one of `SHIPPED`."""
    path = Path(name)
    if str(name) in SHIPPED:
        path = reference_file(f"batteries/{name}.json")
    elif not path.is_file():
        raise BiasError(
            f"{unknown_name('battery', str(name), SHIPPED)} (or give the JSON file of your own)"
        )
    content = check_format(read_json(path, BiasError), path, FORMAT, FORMAT_VERSION, BiasError)
    try:
        return _battery(content, path.stem)
    except BiasError as problem:
        raise BiasError(f"{path}: {problem}") from None


def select(selector: Selector, tables: Sequence[Mapping[str, Sequence[str]]]) -> list[str]:
    """The ids that a selector means, by the first table where all of it is found.

    Every value must be there: a set that lacks one of its stimuli is another set.
    """
    if not isinstance(selector, Mapping):
        return list(selector)
    have_columns = [table for table in tables if all(name in table for name in selector)]
    if not have_columns:
        known = dict.fromkeys(name for one in tables for name in one)
        raise BiasError(
            f"no column {join_some([n for n in selector if n not in known] or [*selector])} "
            + (f"beside {join_some([*known], 12)}" if known else "is known of these embeddings")
            + "; give the manifest that has it (--manifest), or ids"
        )
    problems = []
    for table in have_columns:
        rows = [
            row
            for row in range(len(table["id"]))
            if all(table[name][row] in values for name, values in selector.items())
        ]
        lost = {
            name: sorted(set(values) - {table[name][row] for row in rows})
            for name, values in selector.items()
        }
        if not any(lost.values()):
            return [table["id"][row] for row in rows]
        problems.append((-len(rows), lost))
    _, lost = min(problems, key=lambda problem: problem[0])
    name = next(name for name in lost if lost[name])
    others = {key: one for key, one in selector.items() if key != name}
    also = f" where {_in_words(others)}" if others else ""
    raise BiasError(f"no item has the {name} {join_some([*map(repr, lost[name])])}{also}")


def _in_words(selector: Mapping[str, tuple[str, ...]]) -> str:
    return " and ".join(f"{name} is {' or '.join(of)}" for name, of in selector.items())


def _battery(content: Mapping[str, Any], stem: str) -> Battery:
    _known(content, "battery", "format format_version name source models sets templates tests")
    sets = _mapping(content.get("sets", {}), "sets")
    tests = content.get("tests")
    if not isinstance(tests, list) or not tests:
        raise BiasError('"tests" is a list of one test or more')
    found = tuple(_test(_mapping(one, "a test"), sets) for one in tests)
    names = [one.name for one in found]
    if twice := [name for name in names if names.count(name) > 1]:
        raise BiasError(f"two tests are called {shorten(twice[0])}")
    models = _mapping(content.get("models", {}), "models")
    for one in found:
        if strange := sorted(set(one.published) - set(models)):
            raise BiasError(f"{one.name}: published of {strange[0]}, which is not in models")
    return Battery(
        _text(content.get("name", stem), "name"),
        found,
        _mapping(content.get("source", {}), "source"),
        {name: _texts(of, f"models: {name}") for name, of in models.items()},
        _texts(content.get("templates", []), "templates"),
    )


def _test(test: Mapping[str, Any], sets: Mapping[str, Any]) -> AssociationTest:
    name = _text(test.get("name"), "a test's name")
    _known(test, f"test {shorten(name)}", "name x y a b published")
    of: dict[str, Selector] = {}
    for key in "xyab":
        if key in test:
            of[key] = _selector(test[key], sets, f"{name}: {key}")
        elif key != "y":
            raise BiasError(f"{name}: it has no set {key!r}")
    published = {}
    for model, said in _mapping(test.get("published", {}), f"{name}: published").items():
        match said:
            case {"d": int() | float() as d, "significant": bool() as significant}:
                published[model] = Published(float(d), significant)
            case _:
                raise BiasError(f'{name}: published of {model} is {{"d": .., "significant": ..}}')
    return AssociationTest(name, of["x"], of["a"], of["b"], of.get("y"), published)


def _selector(value: Any, sets: Mapping[str, Any], where: str) -> Selector:
    if isinstance(value, str):
        if value not in sets:
            known = f"unknown set {value!r}; it has no sets of a name"
            raise BiasError(f"{where}: {unknown_name('set', value, sets) if sets else known}")
        return _selector(sets[value], {}, f"sets: {value}")
    if isinstance(value, list):
        return _texts(value, where)
    if not value:
        raise BiasError(f"{where} names no column, nor an id")
    return {
        column: _texts([of] if isinstance(of, str) else of, f"{where}: {column}")
        for column, of in _mapping(value, where).items()
    }


def _known(value: Mapping[str, Any], what: str, keys: str) -> None:
    if strange := sorted(set(value) - set(keys.split())):
        raise BiasError(f"{what}: {unknown_name('key', strange[0], keys.split())}")


def _text(value: Any, where: str) -> str:
    if not isinstance(value, str) or not value:
        raise BiasError(f"{where} is {value!r:.60}, and a text is meant")
    return value


def _texts(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise BiasError(f"{where} is {value!r:.60}, and a list of texts is meant")
    return tuple(value)


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise BiasError(f"{where} is {value!r:.60}, and an object of names is meant")
    return value
