"""Batteries: association tests in a JSON file (format: manifests/README.md), run together.

The results show published effect sizes for comparison.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from obygaze_features.common.arrays import Array
from obygaze_features.common.names import as_list, unknown_name
from obygaze_features.common.package import reference_file
from obygaze_features.errors import BiasError, UsageError
from obygaze_models.studies.bias.association import associate, associate_each
from obygaze_models.studies.bias.inputs import Vectors, read_struct
from obygaze_models.studies.bias.measured import Drawing, Measured, Row

SHIPPED = ("emotion", "professions")
"""The batteries that come with obygaze, by name."""
_DRAWING = Drawing(
    title="Association tests",
    axis="effect size d (above 0: X is nearer to A); lines: 95% bootstrap interval",
    groups=["test", "item"],
    value="d",
)

_NotEmpty = msgspec.Meta(min_length=1)
_Ids = tuple[str, ...]
_Columns = Annotated[dict[str, str | _Ids], _NotEmpty]
Selector = str | _Ids | _Columns
"""A selection of items: ids, columns with the values that items must have, or a set's name."""
_Tables = Sequence[Mapping[str, Sequence[str]]]


class Published(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An effect size from the literature, and whether it was significant (p < .05)."""

    d: float
    significant: bool


class AssociationTest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Are `x` and `y` differently close to `a` and `b`? Without `y`, each item of `x` is tested."""

    name: str
    x: Selector
    a: Selector
    b: Selector
    y: Selector | None = None
    published: dict[str, Published] = {}


class Battery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Association tests that are run together.

    Parameters
    ----------
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
    models: dict[str, _Ids] = {}
    templates: _Ids = ()
    sets: dict[str, _Ids | _Columns] = {}
    format: Literal["obygaze-battery"] = "obygaze-battery"
    format_version: Literal[1] = 1


def read_battery(name: str | Path) -> Battery:
    """Read a battery from a file or from `SHIPPED`."""
    path = Path(name)
    if str(name) in SHIPPED:
        path = reference_file(f"batteries/{name}.json")
    elif not path.is_file():
        unknown = unknown_name("battery", str(name), SHIPPED)
        raise BiasError(f"{unknown} (or pass your own JSON file)")
    return read_struct(path, Battery)


def select(selector: Selector, battery: Battery, tables: _Tables) -> list[str]:
    """Return the ids for a selector, from the first table with all the columns and values.

    Raise `BiasError` if no table has them all, because the set would then lack a stimulus.
    """
    import pandas as pd

    if isinstance(selector, str):
        if selector not in battery.sets:
            raise BiasError(unknown_name("set", selector, battery.sets))
        selector = battery.sets[selector]
    if not isinstance(selector, dict):
        return list(selector)

    wanted = {name: as_list(values) for name, values in selector.items()}
    reason = f"no table has the columns {', '.join(wanted)}. Pass a manifest that has them"
    for table in tables:
        if not wanted.keys() <= table.keys():
            continue
        items = pd.DataFrame({name: table[name] for name in ("id", *wanted)})
        items = items[items[[*wanted]].isin(wanted).all(axis=1)]
        missing = []
        for name, values in wanted.items():
            absent = set(values).difference(items[name])
            missing += [f"{name} {value!r}" for value in sorted(absent)]
        if not missing:
            return items["id"].tolist()
        reason = f"no selected item has the {missing[0]}. Add such an item"
    raise BiasError(reason)


def run_battery(
    battery: Battery,
    vectors: Vectors,
    texts: Vectors | None = None,
    *,
    tables: _Tables = (),
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
        The embeddings of X and Y, and those of A and B if stored separately.
    tables
        The columns of manifests; see `manifest_columns`. They are used before the stores' columns.
    model
        The model whose published numbers to show; by default, the store's backbone.
    skip_missing
        Leave out items without an embedding. Otherwise, their tests are left out.
    """
    texts = texts or vectors
    model = _published_model(battery, model, vectors, texts)

    sources = {"x": vectors, "y": vectors, "a": texts, "b": texts}
    selected = []
    left_out = []
    for test in battery.tests:
        try:
            selected.append((test, _select_sets(test, battery, sources, tables)))
        except BiasError as problem:
            left_out.append({"left_out_test": test.name, "reason": str(problem)})

    found: dict[str, Mapping[str, Array]] = {}
    for names, source in (("xy", vectors), ("ab", texts)):  # read once for all tests
        ids = chain.from_iterable(ids_of[name] for _, ids_of in selected for name in names)
        found |= dict.fromkeys(names, source.read(list(dict.fromkeys(ids))))

    rows = []
    for test, ids_of in selected:
        sets = {}
        missing = []
        for name, items in ids_of.items():
            sets[name] = {item: found[name][item] for item in items if item in found[name]}
            missing += [item for item in items if item not in sets[name]]
        try:
            if missing and not skip_missing:
                raise BiasError(
                    f"items without an embedding: {len(missing)} (such as {missing[0]!r}). Add "
                    "embeddings, or skip these items (skip_missing, --skip-missing)"
                )
            rows += _run_test(test, sets, model, len(missing))
        except BiasError as problem:
            left_out.append({"left_out_test": test.name, "reason": str(problem)})

    if not rows:
        raise BiasError("{left_out_test}: {reason}".format(**left_out[0]))
    about = {"battery": battery.name, "published": model, "left_out_tests": left_out}
    return Measured(rows, _DRAWING, about)


def _published_model(
    battery: Battery,
    model: str | None,
    vectors: Vectors,
    texts: Vectors,
) -> str | None:
    """Return the model whose published numbers to show; raise if the stores' weights differ."""
    weights = {str(source.backbone.get("weights_sha256", "")) for source in (vectors, texts)}
    if len([digest for digest in weights if len(digest) == 64]) > 1:  # others are unknown
        raise BiasError(
            f"{vectors.where} and {texts.where} were made with different weights. Use two stores "
            "of a single model"
        )
    if model is not None and model not in battery.models:
        raise UsageError(unknown_name("published model", model, battery.models))
    for name, backbones in battery.models.items():
        if model is None and vectors.backbone.get("name") in backbones:
            model = name
    return model


def _select_sets(
    test: AssociationTest,
    battery: Battery,
    sources: Mapping[str, Vectors],
    tables: _Tables,
) -> dict[str, list[str]]:
    """Return the ids of each set; raise `BiasError` if an id occurs twice in the same source.

    The same id in separate sources, such as images and texts, stands for two different items.
    """
    ids_of = {}
    seen = set()
    for name, source in sources.items():
        ids_of[name] = select(getattr(test, name) or (), battery, [*tables, source.columns])
        for item in ids_of[name]:
            if (source.where, item) in seen:
                raise BiasError(
                    f"{item!r} of set {name.upper()} is listed twice in this test. List it once"
                )
            seen.add((source.where, item))
    return ids_of


def _run_test(
    test: AssociationTest,
    sets: Mapping[str, Mapping[str, Array]],
    model: str | None,
    missing: int,
) -> list[Row]:
    """Return the row of a test, or a row for each item of X if items are tested separately."""
    x, y, a, b = sets.values()
    sizes = {name: len(items) for name, items in sets.items()}
    sizes["missing"] = missing
    if test.y is None:
        rows = []
        for item, result in zip(x, associate_each(x, a, b), strict=True):
            rows.append({"test": test.name, "item": item, **sizes, "x": 1, **asdict(result)})
        return rows
    row = {"test": test.name, **sizes, **asdict(associate(x, y, a, b))}
    published = test.published.get(model or "")
    if published is not None:
        row |= {"published_d": published.d, "published_significant": published.significant}
    return [row]
