"""Batteries: association tests in a JSON file (format: manifests/README.md), run together.

The results show each test beside its published effect size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import msgspec

from obygaze_features.common.package import reference_file
from obygaze_features.common.text import shorten, shorten_digest, unknown_name
from obygaze_features.errors import BiasError, UsageError
from obygaze_models.bias.association import Settings, associate, associate_each
from obygaze_models.bias.inputs import Vectors, read_struct
from obygaze_models.bias.measured import Drawing, Measured, Rows
from obygaze_models.scoring.metrics import Array

FORMAT, FORMAT_VERSION = "obygaze-battery", 1
SHIPPED = ("emotion", "professions")
"""The batteries that come with obygaze, by name."""
_DRAWING = Drawing(
    title="Association tests",
    axis="effect size d (above 0: X is nearer to A); lines: 95% bootstrap interval",
    groups=["test", "item"],
    series="model",
    value="d",
)

_NotEmpty = msgspec.Meta(min_length=1)
_Name = Annotated[str, _NotEmpty]
_Ids = Annotated[tuple[str, ...], _NotEmpty]
_Columns = Annotated[dict[str, str | _Ids], _NotEmpty]
Selector = str | _Ids | _Columns
"""A selection of items: ids, columns with the values that items must have, or a set's name."""
_Tables = Sequence[Mapping[str, Sequence[str]]]


class Published(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An effect size from the literature, and whether it was significant (p < .05)."""

    d: float
    significant: bool


class AssociationTest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An association test. If y is None, each item of x is tested separately."""

    name: _Name
    x: Selector
    a: Selector
    b: Selector
    y: Selector | None = None
    published: dict[str, Published] = {}


class Battery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Association tests that are run together.

    Parameters
    ----------
    tests, name, source
        The tests, and the battery's name and source.
    models
        The models with published numbers: a mapping from each model's published name to its names
        in obygaze.
    templates
        The templates that turn the words in `sets` into prompts.
    sets
        Named selections of items, so that several tests can use the same selection.
    """

    tests: Annotated[tuple[AssociationTest, ...], _NotEmpty]
    name: str = ""
    source: dict[str, Any] = {}
    models: dict[str, tuple[str, ...]] = {}
    templates: tuple[str, ...] = ()
    sets: dict[str, tuple[str, ...] | dict[str, str | tuple[str, ...]]] = {}
    format: str = FORMAT
    format_version: int = FORMAT_VERSION


def read_battery(name: str | Path) -> Battery:
    """Read a battery from a file or from `SHIPPED`, and replace the names of sets with the sets."""
    path = Path(name)
    if str(name) in SHIPPED:
        path = reference_file(f"batteries/{name}.json")
    elif not path.is_file():
        unknown = unknown_name("battery", str(name), SHIPPED)
        raise BiasError(f"{unknown} (or pass your own JSON file)")

    battery = read_struct(path, Battery, FORMAT, FORMAT_VERSION)
    tests: dict[str, AssociationTest] = {}
    for test in battery.tests:
        where = f"{path}: test {shorten(test.name)}"
        if test.name in tests:
            raise BiasError(f"{where}: duplicate test name. Rename one test")
        sets = {key: _resolve(getattr(test, key), battery, where) for key in "xyab"}
        tests[test.name] = msgspec.structs.replace(test, **sets)
    return msgspec.structs.replace(
        battery, name=battery.name or path.stem, tests=tuple(tests.values())
    )


def _resolve(selector: Selector | None, battery: Battery, where: str) -> Selector | None:
    """Replace the name of a set with the set, and each single value with a tuple."""
    if isinstance(selector, str):
        if selector not in battery.sets:
            raise BiasError(f"{where}: {unknown_name('set', selector, battery.sets)}")
        selector = battery.sets[selector]
    if not isinstance(selector, dict):
        return selector
    return {name: (v,) if isinstance(v, str) else v for name, v in selector.items()}


def select(selector: Selector, tables: _Tables) -> list[str]:
    """Return the ids for a selector, from the first table with all its columns and values.

    Raise `BiasError` if no table has them all, because the set would then lack a stimulus.
    """
    import pandas as pd

    if not isinstance(selector, dict):
        return list(selector)

    reason = f"no table has the columns {', '.join(selector)}. Pass a manifest that has them"
    for table in tables:
        if not selector.keys() <= table.keys():
            continue
        items = pd.DataFrame({name: table[name] for name in ("id", *selector)})
        items = items[items[[*selector]].isin(selector).all(axis=1)]
        missing = []
        for name, values in selector.items():
            missing += [f"{name} {value!r}" for value in sorted({*values} - {*items[name]})]
        if not missing:
            return items["id"].tolist()
        reason = f"no selected item has the {missing[0]}"
    raise BiasError(reason)


def run_battery(
    battery: Battery,
    vectors: Vectors,
    texts: Vectors | None = None,
    *,
    tables: _Tables = (),
    settings: Settings = Settings(),  # noqa: B008
    model: str | None = None,
    skip_missing: bool = False,
) -> Measured:
    """Run all tests of a battery.

    There is a row for each test, or for each ``item`` of X if a test has no Y. Tests that cannot be
    run are in ``about["left_out_tests"]``. Raise `BiasError` if no test can be run.

    Parameters
    ----------
    battery
        The result of `read_battery`.
    vectors, texts
        The embeddings of X and Y, and those of A and B if they are stored separately.
    tables
        The columns of manifests; see `manifest_columns`. They are used before the stores' columns.
    settings
        The settings of the association tests.
    model
        The model whose published numbers to show; by default, the store's backbone.
    skip_missing
        Leave out items without an embedding. Otherwise, their tests are left out.
    """
    texts = texts or vectors
    model = _published_model(battery, model, vectors, texts)

    selected: dict[str, dict[str, list[str]]] = {}
    left_out: dict[str, str] = {}
    for test in battery.tests:
        try:
            selected[test.name] = _select_sets(test, vectors, texts, tables)
        except BiasError as problem:
            left_out[test.name] = str(problem)

    images = _read(vectors, selected, "xy")  # once for all tests
    words = _read(texts, selected, "ab")
    embeddings = {"x": images, "y": images, "a": words, "b": words}

    rows: Rows = []
    notes: list[str] = []
    for test in battery.tests:
        if test.name not in selected:
            continue
        sets: dict[str, dict[str, Array]] = {}
        missing = []
        for name, ids in selected[test.name].items():
            sets[name] = {item: embeddings[name][item] for item in ids if item in embeddings[name]}
            missing += [f"{item!r} of {name.upper()}" for item in ids if item not in sets[name]]
        try:
            if missing and not skip_missing:
                raise BiasError(
                    f"{_describe(missing)}. Add --skip-missing to leave out these items"
                )
            rows += _run_test(test, sets, settings, model)
        except BiasError as problem:
            left_out[test.name] = str(problem)
        if missing and skip_missing:
            notes.append(f"{test.name}: {_describe(missing)}")

    if not rows:
        name, reason = next(iter(left_out.items()))
        raise BiasError(f"{name}: {reason}")
    reasons = [{"left_out_test": name, "reason": reason} for name, reason in left_out.items()]
    about = {"battery": battery.name, "published": model, "left_out_tests": reasons}
    return Measured(rows, _DRAWING, about, notes)


def _describe(missing: Sequence[str]) -> str:
    return f"no embedding for {len(missing)} items, such as {missing[0]}"


def _published_model(
    battery: Battery, model: str | None, vectors: Vectors, texts: Vectors
) -> str | None:
    """Return the model whose published numbers to show; raise if the stores' weights differ."""
    if model is not None and model not in battery.models:
        raise UsageError(unknown_name("published model", model, battery.models))
    if vectors.weights and texts.weights and vectors.weights != texts.weights:
        raise BiasError(
            f"{vectors.where} has features of {vectors.backbone} (weights "
            f"{shorten_digest(vectors.weights)}), but {texts.where} has features of "
            f"{texts.backbone} ({shorten_digest(texts.weights)}). Use two stores with the same "
            "weights, because cosines need a single model"
        )
    models = [name for name, backbones in battery.models.items() if vectors.backbone in backbones]
    return model or next(iter(models), None)


def _select_sets(
    test: AssociationTest, vectors: Vectors, texts: Vectors, tables: _Tables
) -> dict[str, list[str]]:
    """Return the ids of each set; raise `BiasError` if an id occurs twice in the same source.

    The same id in separate sources, such as images and texts, stands for two different items.
    """
    sets: dict[str, list[str]] = {}
    seen = set()
    for name in "xyab":
        source = vectors if name in "xy" else texts
        selector = getattr(test, name)
        sets[name] = select(selector or (), [*tables, source.columns])
        for item in sets[name]:
            if (source.where, item) in seen:
                raise BiasError(f"{item!r} is in set {name.upper()} and again. List it only once")
            seen.add((source.where, item))
    return sets


def _read(
    source: Vectors, selected: Mapping[str, Mapping[str, Sequence[str]]], names: str
) -> dict[str, Array]:
    """Return the embeddings of all items in some sets of all tests."""
    ids: dict[str, None] = {}
    for sets in selected.values():
        for name in names:
            ids |= dict.fromkeys(sets[name])
    return dict(zip(*source.read(list(ids)), strict=True))


def _run_test(
    test: AssociationTest,
    sets: Mapping[str, Mapping[str, Array]],
    settings: Settings,
    model: str | None,
) -> Rows:
    """Return the row of a test, or a row for each item of X if items are tested separately."""
    x, y, a, b = sets.values()
    rows: Rows = []
    sizes = {"a": len(a), "b": len(b)}
    if test.y is None:
        for item, result in zip(x, associate_each(x, a, b, settings), strict=True):
            rows.append({"test": test.name, "item": item, "x": 1, "y": 0, **sizes} | asdict(result))
        return rows
    result = associate(x, y, a, b, settings)
    row = {"test": test.name, "x": len(x), "y": len(y), **sizes, **asdict(result)}
    published = test.published.get(model or "")
    if published is not None:
        row |= {"published_d": published.d, "published_significant": published.significant}
    return [row]
