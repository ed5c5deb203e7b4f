"""Batteries: association tests in a JSON file, run together; manifests/README.md has the format.

Each test is a row of the results, beside the published number.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.package import reference_file
from obygaze_features.common.tables import align
from obygaze_features.common.text import counted, join_some, shorten, shorten_digest, unknown_name
from obygaze_features.errors import BiasError, UsageError
from obygaze_models.bias.association import Association, Settings, associate, associate_each
from obygaze_models.bias.inputs import convert, read_struct, refuse_unknown_keys
from obygaze_models.bias.vectors import Vectors
from obygaze_models.figures.dots import Line, Point, dot_plot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMAT, FORMAT_VERSION = "obygaze-battery", 1
SHIPPED = ("emotion", "professions")
"""The batteries that come with obygaze, by name."""
SIGNIFICANT = 0.05
"""Below this p a * is printed beside d, as in the published tables."""

Selector = tuple[str, ...] | dict[str, tuple[str, ...]]
"""Ids; or columns, each with the values that an item may have there."""
_Columns = Mapping[str, Sequence[str]]
_Sets = Mapping[str, Sequence[str]]
_NESTED = ("association", "published")
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


@dataclass(frozen=True)
class TestResult:
    """The result of a test, or of one `item` of X where each is tested alone.

    `x`, `y`, `a` and `b` are the numbers of items; `published` is the number of the same model, if
    there is one.
    """

    test: str
    item: str | None
    x: int
    y: int
    a: int
    b: int
    association: Association
    published: Published | None

    @property
    def name(self) -> str:
        """The test, and the item."""
        return self.test if self.item is None else f"{self.test}: {self.item}"

    @property
    def significant(self) -> bool:
        """Whether p is below `SIGNIFICANT`."""
        return self.association.p < SIGNIFICANT

    def to_dict(self) -> dict[str, Any]:
        """The result as one row of a table, or of JSON."""
        row = {name: value for name, value in vars(self).items() if name not in _NESTED}
        return {
            **row,
            **vars(self.association),
            "significant": self.significant,
            "published_d": self.published and self.published.d,
            "published_significant": self.published and self.published.significant,
        }


@dataclass(frozen=True)
class BatteryResults:
    """A battery's results; `left_out` has the reason for each test left out, `lost` lost items."""

    battery: str
    model: str | None
    results: tuple[TestResult, ...]
    left_out: Mapping[str, str]
    lost: tuple[str, ...]

    def rows(self) -> list[dict[str, Any]]:
        """The results as rows of a table."""
        return [result.to_dict() for result in self.results]

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON values."""
        return {
            "battery": self.battery,
            "model": self.model,
            "rows": self.rows(),
            "left_out": self.left_out,
            "notes": self.lost,
        }

    def notes(self) -> list[str]:
        """Lost items, and the tests left out."""
        left_out = [f"{name} is left out: {reason}" for name, reason in self.left_out.items()]
        return [*self.lost, *left_out]

    def describe(self) -> str:
        """A table of the results, and how p was computed."""
        header = [self.battery, "X", "Y", "A", "B", "d", "95%", "T", "p"]
        header += [str(self.model)] if self._has_published else []
        cells = []
        for row in self.results:
            test, published = row.association, row.published
            interval = "-" if test.low is None else f"{test.low:+.2f} to {test.high:+.2f}"
            line = [row.name, row.x, row.y or "-", row.a, row.b, _starred(test.d, row.significant)]
            line += [interval, f"{test.statistic:+.4f}", format_p(test.p)]
            if self._has_published:
                line.append(_starred(published.d, published.significant) if published else "-")
            cells.append(line)
        return f"{align(header, cells)}\n{self._methods}; 95% of d over draws"

    def figure(self) -> Figure:
        """The effect sizes with their intervals, beside the published ones."""
        points = [
            Point(
                row.item or row.test,
                row.association.d,
                row.association.low,
                row.association.high,
                row.published.d if row.published else None,
                group=row.test if row.item else "",
                mark="*" if row.significant else "",
                reference_mark="*" if row.published and row.published.significant else "",
                note=format_p(row.association.p),
            )
            for row in self.results
        ]
        title = f"{counted(len(points), 'association test')}: {self.battery}"
        return dot_plot(
            points,
            title=title + (f" (published: {self.model})" if self._has_published else ""),
            axis="effect size d",
            ends=("X nearer to B", "X nearer to A"),
            description="; ".join(f"{row.name}: p {row.association.p:.3g}" for row in self.results),
            lines=[Line(0.0, "no association")],
            interval="95% interval over draws of items",
            value="here",
            signed=True,
            note="p",
            footnote=f"{self._methods}; the interval from draws of items with replacement.",
        )

    @property
    def _has_published(self) -> bool:
        return any(row.published for row in self.results)

    @property
    def _methods(self) -> str:
        """What a star means, and how p was computed; it can differ by test."""
        used = dict.fromkeys(
            (row.association.p_is, row.association.partitions) for row in self.results
        )
        words = {"exact": "all", "sampled": "random"}
        methods = [
            "from a normal distribution"
            if count is None
            else f"over {words[p_is]} partitions ({count:,})"
            for p_is, count in used
        ]
        return f"* p < {SIGNIFICANT}, one-sided; p {' or '.join(methods)}"


def _starred(d: float, significant: bool) -> str:
    return f"{d:+.2f}{'*' if significant else ' '}"


def format_p(p: float) -> str:
    """A p as tables and figures print it.

    Examples
    --------
    >>> format_p(0.0142857), format_p(0.00002)
    ('0.0143', '2.0e-05')
    """
    return f"{p:.4f}" if p >= 0.0001 else f"{p:.1e}"


def run_battery(
    battery: Battery,
    vectors: Vectors,
    texts: Vectors | None = None,
    *,
    tables: Sequence[_Columns] = (),
    settings: Settings = Settings(),  # noqa: B008
    model: str | None = None,
    skip_missing: bool = False,
) -> BatteryResults:
    """Run all tests of a battery.

    A test that cannot be run is left out, unless none can.

    Parameters
    ----------
    battery
        From `read_battery`.
    vectors, texts
        The embeddings of X and Y, and those of A and B if they are elsewhere.
    tables
        Columns of manifests to select by, before those of the stores; see `manifest_columns`.
    settings
        How each association is tested.
    model
        The model whose published numbers to show; by default the store's backbone.
    skip_missing
        Leave out items without an embedding.
    """
    _check_models(battery, model, vectors, texts)
    model = model or battery.model_of(vectors.backbone)
    parts = {"XYAB": vectors} if texts is None else {"XY": vectors, "AB": texts}
    sources = {name: source for names, source in parts.items() for name in names}
    selected: dict[str, _Sets] = {}
    results: list[TestResult] = []
    left_out: dict[str, str] = {}
    lost: list[str] = []
    for test in battery.tests:
        try:
            selected[test.name] = {
                name: select(selector, [*tables, sources[name].columns])
                for name, selector in test.sets.items()
            }
        except BiasError as problem:
            left_out[test.name] = str(problem)
    embeddings = _read_embeddings(parts, selected.values())
    for test in battery.tests:
        if test.name in left_out:
            continue
        try:
            sets = selected[test.name]
            _refuse_overlap(sets, separate=sources["A"].where != vectors.where)
            rows: dict[str, dict[str, NDArray[Any]]] = {name: {} for name in "XYAB"}
            for name, items in sets.items():
                rows[name] = _rows(name, items, embeddings[name])
                if text := _describe_missing(name, items, rows[name], sources[name].where):
                    if not skip_missing:
                        raise BiasError(f"{text}; to leave them out: --skip-missing")
                    lost.append(f"{test.name}: {text}")
            results += _results(test, rows, settings, model)
        except BiasError as problem:
            left_out[test.name] = str(problem)
    if not results:
        (name, reason), *others = left_out.items()
        more = f" (and {counted(len(others), 'more test')} cannot be run)" if others else ""
        raise BiasError(f"{name}: {reason}{more}")
    return BatteryResults(battery.name, model, tuple(results), left_out, tuple(lost))


def _check_models(
    battery: Battery, model: str | None, vectors: Vectors, texts: Vectors | None
) -> None:
    """Raise if a battery does not publish a model, or images and texts are of two models."""
    if model is not None and model not in battery.models:
        if not battery.models:
            raise UsageError(f"{battery.name} has no published figures; leave out --published")
        raise UsageError(unknown_name("published model", model, battery.models))
    if texts is not None and vectors.weights and texts.weights not in ("", vectors.weights):
        raise BiasError(
            f"{vectors.where} is of {vectors.backbone} (weights "
            f"{shorten_digest(vectors.weights)}), {texts.where} of {texts.backbone} "
            f"({shorten_digest(texts.weights)}): cosines need one model; "
            "give two stores of the same weights"
        )


def _read_embeddings(
    parts: Mapping[str, Vectors], selected: Collection[_Sets]
) -> dict[str, Mapping[str, NDArray[Any]]]:
    """Read each source once for all tests together, by the name of a set."""
    embeddings: dict[str, Mapping[str, NDArray[Any]]] = {}
    for names, source in parts.items():
        ids = dict.fromkeys(
            item for sets in selected for name in names for item in sets.get(name, ())
        )
        read = dict(zip(*source.read([*ids]), strict=True))
        embeddings |= dict.fromkeys(names, read)
    return embeddings


def _describe_missing(name: str, items: Sequence[str], rows: Collection[str], where: str) -> str:
    """Count the items of a set that have no embedding; empty if none."""
    missing = [item for item in items if item not in rows]
    if not missing:
        return ""
    return (
        f"{len(missing)} of the {counted(len(items), 'item')} of {name} have no embedding in "
        f"{where}, such as {missing[0]!r}"
    )


def _refuse_overlap(sets: _Sets, *, separate: bool) -> None:
    """Raise `BiasError` if a set is empty, or an item is in two sets or twice in one.

    In `separate` places the same id means different things, as of images and of texts.
    """
    for name, items in sets.items():
        if not items:
            raise BiasError(f"the set {name} is empty")
        if len(set(items)) != len(items):
            twice = next(item for item in items if items.count(item) > 1)
            raise BiasError(f"the set {name} has {twice!r} twice")
    for name, second in combinations(sets, 2):
        if separate and (name in "XY") != (second in "XY"):
            continue
        if common := sorted(set(sets[name]) & set(sets[second])):
            listed = join_some([*map(repr, common)], 3)
            raise BiasError(f"the sets {name} and {second} overlap: {listed}")


def _rows(
    name: str, items: Sequence[str], embeddings: Mapping[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    """The embeddings that a set's items have; each has a direction."""
    rows = {item: embeddings[item] for item in items if item in embeddings}
    for item, row in rows.items():
        if not row.any():
            raise BiasError(f"the embedding of {item!r}, of {name}, has length zero")
        if not np.isfinite(row).all():
            raise BiasError(f"the embedding of {item!r}, of {name}, is not all finite numbers")
    return rows


def _results(
    test: AssociationTest,
    rows: Mapping[str, Mapping[str, NDArray[Any]]],
    settings: Settings,
    model: str | None,
) -> list[TestResult]:
    x, y, a, b = (list(rows[name].values()) for name in "XYAB")
    if test.y is not None:
        sizes = len(x), len(y), len(a), len(b)
        published = test.published.get(model or "")
        return [TestResult(test.name, None, *sizes, associate(x, y, a, b, settings), published)]
    return [
        TestResult(test.name, item, 1, 0, len(a), len(b), association, None)
        for item, association in zip(rows["X"], associate_each(x, a, b, settings), strict=True)
    ]
