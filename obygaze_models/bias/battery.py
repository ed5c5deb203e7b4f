"""Batteries: association tests in a JSON file, run together; manifests/README.md has the format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec

from obygaze_features.common.package import reference_file
from obygaze_features.common.text import join_some, shorten, unknown_name
from obygaze_features.errors import BiasError
from obygaze_models.bias.inputs import convert, read_struct, refuse_unknown_keys

FORMAT, FORMAT_VERSION = "obygaze-battery", 1
SHIPPED = ("emotion", "professions")
"""The batteries that come with obygaze, by name."""

Selector = tuple[str, ...] | dict[str, tuple[str, ...]]
"""Ids; or columns, each with the values that an item may have there."""
_Name = Annotated[str, msgspec.Meta(min_length=1)]


class Published(msgspec.Struct, frozen=True):
    """An effect size from the literature, and whether it was significant (p < .05)."""

    d: float
    significant: bool


class AssociationTest(msgspec.Struct, frozen=True):
    """One association test; without y each item of x is tested alone."""

    name: _Name
    x: Selector
    a: Selector
    b: Selector
    y: Selector | None = None
    published: dict[str, Published] = {}

    @property
    def sets(self) -> dict[str, Selector]:
        """The sets by their names X, Y, A and B."""
        sets = {"X": self.x, "Y": self.y, "A": self.a, "B": self.b}
        return {name: selector for name, selector in sets.items() if selector is not None}


class Battery(msgspec.Struct, frozen=True):
    """Tests that belong together.

    Parameters
    ----------
    name, tests, source
        Its contents, and where they are from.
    models
        For each model with published numbers the names of that backbone in obygaze.
    templates
        The prompts were made by these from the stimuli that sets name.
    """

    name: str
    tests: tuple[AssociationTest, ...]
    source: dict[str, Any] = {}
    models: dict[str, tuple[str, ...]] = {}
    templates: tuple[str, ...] = ()

    def model_of(self, backbone: str) -> str | None:
        """The published model that a store's backbone is."""
        return next((model for model, names in self.models.items() if backbone in names), None)


class _BatteryFile(msgspec.Struct):
    """The keys of the file; a test can name one of its sets."""

    format: str
    format_version: int
    tests: Annotated[list[dict[str, Any]], msgspec.Meta(min_length=1)]
    name: _Name | None = None
    source: dict[str, Any] = {}
    models: dict[str, tuple[str, ...]] = {}
    templates: tuple[str, ...] = ()
    sets: dict[str, list[str] | dict[str, str | list[str]]] = {}


def read_battery(name: str | Path) -> Battery:
    """The battery in a file, or one of `SHIPPED`."""
    path = Path(name)
    if str(name) in SHIPPED:
        path = reference_file(f"batteries/{name}.json")
    elif not path.is_file():
        raise BiasError(
            f"{unknown_name('battery', str(name), SHIPPED)} (or give the JSON file of your own)"
        )
    file = read_struct(path, _BatteryFile, FORMAT, FORMAT_VERSION)
    tests = tuple(_test(entry, file, path) for entry in file.tests)
    names = [test.name for test in tests]
    for test in tests:
        if names.count(test.name) > 1:
            raise BiasError(f"{path}: two tests are called {shorten(test.name)}; rename one")
        for model in test.published:
            if model not in file.models:
                raise BiasError(
                    f"{path}: test {shorten(test.name)} has a published number of {model}, which "
                    "is not in models; add it there"
                )
    return Battery(file.name or path.stem, tests, file.source, file.models, file.templates)


def select(selector: Selector, tables: Sequence[Mapping[str, Sequence[str]]]) -> list[str]:
    """The ids that a selector names, by the first table that has all of it.

    Every value must be there: a set that lacks one of its stimuli is another set.
    """
    if not isinstance(selector, dict):
        return list(selector)
    candidates = [table for table in tables if all(name in table for name in selector)]
    if not candidates:
        columns = dict.fromkeys(name for table in tables for name in table)
        unknown = [name for name in selector if name not in columns] or [*selector]
        there = (
            f"there are {join_some([*columns], 12)}" if columns else "these embeddings have none"
        )
        raise BiasError(
            f"no column {join_some(unknown)}; {there}. Give the manifest that has it (--manifest), "
            "or ids"
        )
    problems = []
    for table in candidates:
        rows = [
            row
            for row in range(len(table["id"]))
            if all(table[name][row] in values for name, values in selector.items())
        ]
        missing = {
            name: lost
            for name, values in selector.items()
            if (lost := sorted(set(values) - {table[name][row] for row in rows}))
        }
        if not missing:
            return [table["id"][row] for row in rows]
        problems.append((len(rows), missing))
    _, missing = max(problems, key=lambda problem: problem[0])
    name, lost = next(iter(missing.items()))
    conditions = " and ".join(
        f"{column} is {' or '.join(values)}"
        for column, values in selector.items()
        if column != name
    )
    where = f" where {conditions}" if conditions else ""
    raise BiasError(f"no item has the {name} {join_some([*map(repr, lost)])}{where}")


def _test(entry: dict[str, Any], file: _BatteryFile, path: Path) -> AssociationTest:
    where = f"{path}: test {shorten(str(entry.get('name', '')))}"
    refuse_unknown_keys(entry, AssociationTest, where)
    resolved = dict(entry)
    for key in "xyab":
        value = entry.get(key)
        if isinstance(value, str):
            if value not in file.sets:
                raise BiasError(f"{where}: {key}: {unknown_name('set', value, file.sets)}")
            value = file.sets[value]
        if isinstance(value, dict):
            value = {name: [of] if isinstance(of, str) else of for name, of in value.items()}
        if value in ([], {}):
            raise BiasError(f"{where}: {key} is empty; give ids, or columns with values")
        if value is not None:
            resolved[key] = value
    return convert(resolved, AssociationTest, where)
