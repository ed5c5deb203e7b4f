"""Batteries: association tests in a JSON file (format: manifests/README.md), run together.

The results show each test beside its published effect size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from numpy.typing import ArrayLike

from obygaze_features.common.package import reference_file
from obygaze_features.common.text import counted, join_some, shorten, shorten_digest, unknown_name
from obygaze_features.errors import BiasError, UsageError
from obygaze_models.bias.association import Association, Settings, associate, associate_each
from obygaze_models.bias.inputs import Row, Vectors, format_table, read_struct
from obygaze_models.figures.dots import Line, Point, dot_plot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMAT, FORMAT_VERSION = "obygaze-battery", 1
SHIPPED = ("emotion", "professions")
"""The batteries that come with obygaze, by name."""
SIGNIFICANT = 0.05
"""The p-value below which a * is printed after d, as in the published tables."""

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


class Battery(msgspec.Struct, frozen=True):
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
        raise BiasError(
            f"{unknown_name('battery', str(name), SHIPPED)} (or pass your own JSON file)"
        )
    battery = read_struct(path, Battery, FORMAT, FORMAT_VERSION)
    tests: dict[str, AssociationTest] = {}
    for test in battery.tests:
        where = f"{path}: test {shorten(test.name)}"
        if test.name in tests:
            raise BiasError(f"{where}: duplicate test name. Rename one test")
        for model in test.published:
            if model not in battery.models:
                raise BiasError(f"{where}: {model} has a published number. Add it to 'models'")
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
    candidates = [table for table in tables if selector.keys() <= table.keys()]
    if not candidates:
        columns = join_some(list(dict.fromkeys(chain(*tables))), 12)
        raise BiasError(
            f"no table has the columns {join_some([*selector])} (got {columns or 'none'}). "
            "Pass a manifest with these columns (--manifest), or select items by id"
        )
    for table in candidates:
        missing: list[str] = []
        items = pd.DataFrame({name: table[name] for name in ("id", *selector)})
        items = items[items[[*selector]].isin(selector).all(axis=1)]
        for name, values in selector.items():
            missing += [f"{name} {value!r}" for value in sorted({*values} - {*items[name]})]
        if not missing:
            return items["id"].tolist()
    query = ",".join(f"{name}:{'|'.join(values)}" for name, values in selector.items())
    raise BiasError(f"no selected item has the {missing[0]}. Correct the selection ({query})")


@dataclass(frozen=True)
class BatteryResults:
    """A battery's results, with a row for each test, or for each `item` of X tested separately.

    `left_out` maps each test that was left out to the reason. `lost` has a sentence for each set
    with items that have no embedding.
    """

    battery: str
    model: str | None
    results: tuple[dict[str, Any], ...]
    left_out: Mapping[str, str]
    lost: tuple[str, ...]

    def rows(self) -> list[dict[str, Any]]:
        """Return the results as rows of a table."""
        return list(self.results)

    def to_dict(self) -> dict[str, Any]:
        """Return the results as JSON values."""
        return {
            "battery": self.battery,
            "model": self.model,
            "rows": self.rows(),
            "left_out": self.left_out,
            "notes": self.lost,
        }

    def notes(self) -> list[str]:
        """Return sentences about items without an embedding, and about tests that were left out."""
        left_out = [f"{name} is left out: {reason}" for name, reason in self.left_out.items()]
        return [*self.lost, *left_out]

    def describe(self) -> str:
        """Return a table of the results, and the method for p."""
        header = [self.battery, "X", "Y", "A", "B", "d", "95%", "T", "p"]
        cells = ["{name}", "{x}", "{y}", "{a}", "{b}", "{d:+.2f}{star}"]
        cells += ["{low:+.2f} to {high:+.2f}", "{statistic:+.4f}", "{p}"]
        if self._has_published:
            header.append(str(self.model))
            cells.append("{published_d:+.2f}{published_star}")
        rows = []
        for row in self.results:
            stars = {"star": _star(row, ""), "published_star": _star(row, "published_")}
            names = {"name": _name(row), "y": row["y"] or "-", "p": format_p(row["p"])}
            rows.append({**row, **stars, **names})
        return f"{format_table(header, cells, rows)}\n{self._methods}; 95% bootstrap interval of d"

    def figure(self) -> Figure:
        """Draw the effect sizes with their intervals, beside the published effect sizes."""
        points = [
            Point(
                row["item"] or row["test"],
                row["d"],
                row["low"],
                row["high"],
                row["published_d"],
                group=row["test"] if row["item"] else "",
                mark=_star(row, "").strip(),
                reference_mark=_star(row, "published_").strip(),
                note=format_p(row["p"]),
            )
            for row in self.results
        ]
        title = f"{counted(len(points), 'association test')}: {self.battery}"
        return dot_plot(
            points,
            title=title + (f" (published: {self.model})" if self._has_published else ""),
            axis="effect size d",
            ends=("X nearer to B", "X nearer to A"),
            description="; ".join(f"{_name(row)}: p {row['p']:.3g}" for row in self.results),
            lines=[Line(0.0, "no association")],
            interval="95% bootstrap interval",
            value="here",
            signed=True,
            note="p",
            footnote=f"{self._methods}; the interval is from resampling items.",
        )

    @property
    def _has_published(self) -> bool:
        return any(row["published_d"] is not None for row in self.results)

    @property
    def _methods(self) -> str:
        """The meaning of a star, and the methods for p. The tests can have different methods."""
        words = {
            "exact": "over all partitions ({partitions:,})",
            "sampled": "over random partitions ({partitions:,})",
            "normal": "from a normal distribution",
        }
        methods = dict.fromkeys(words[row["p_is"]].format(**row) for row in self.results)
        return f"* p < {SIGNIFICANT}, one-sided; p {' or '.join(methods)}"


def _name(row: Row) -> str:
    return row["test"] if row["item"] is None else f"{row['test']}: {row['item']}"


def _star(row: Row, prefix: str) -> str:
    return "*" if row[f"{prefix}significant"] else " "


def format_p(p: float) -> str:
    """Format a p-value for tables and figures.

    Examples
    --------
    >>> format_p(0.0142857), format_p(0.00002)
    ('0.0143', '2.0e-05')
    """
    digits = ".4f" if p >= 0.0001 else ".1e"
    return format(p, digits)


def run_battery(
    battery: Battery,
    vectors: Vectors,
    texts: Vectors | None = None,
    *,
    tables: _Tables = (),
    settings: Settings = Settings(),  # noqa: B008
    model: str | None = None,
    skip_missing: bool = False,
) -> BatteryResults:
    """Run all tests of a battery.

    Tests that cannot be run are left out. Raise `BiasError` if no test can be run.

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
    model = _published_model(battery, model, vectors, texts)
    parts = {"XYAB": vectors} if texts is None else {"XY": vectors, "AB": texts}
    source_of = {name: source for names, source in parts.items() for name in names}
    left_out: dict[str, str] = {}
    selected: dict[str, dict[str, list[str]]] = {}
    for test in battery.tests:
        try:
            selected[test.name] = _select_sets(test, parts, tables)
        except BiasError as problem:
            left_out[test.name] = str(problem)
    embeddings: dict[str, dict[str, ArrayLike]] = {}
    for names, source in parts.items():  # each source is read once for all tests
        ids = [item for sets in selected.values() for name in names for item in sets[name]]
        read = dict(zip(*source.read(list(dict.fromkeys(ids))), strict=True))
        embeddings |= dict.fromkeys(names, read)
    results: list[dict[str, Any]] = []
    lost: list[str] = []
    for test in [test for test in battery.tests if test.name in selected]:
        rows, missing = _rows_of(selected[test.name], embeddings, source_of)
        try:
            if missing and not skip_missing:
                raise BiasError(f"{missing[0]}. Add --skip-missing to leave out these items")
            results += _run_test(test, rows, settings, model)
            lost += [f"{test.name}: {text}" for text in missing]
        except BiasError as problem:
            left_out[test.name] = str(problem)
    if not results:
        (name, reason), *others = left_out.items()
        more = f" (and {counted(len(others), 'more test')} cannot be run)" if others else ""
        raise BiasError(f"{name}: {reason}{more}")
    return BatteryResults(battery.name, model, tuple(results), left_out, tuple(lost))


def _published_model(
    battery: Battery, model: str | None, vectors: Vectors, texts: Vectors | None
) -> str | None:
    """Return the model whose published numbers to show; raise if the stores' weights differ."""
    if model is not None and model not in battery.models:
        raise UsageError(unknown_name("published model", model, battery.models))
    if texts is not None and vectors.weights and texts.weights not in ("", vectors.weights):
        raise BiasError(
            f"{vectors.where} has features of {vectors.backbone} (weights "
            f"{shorten_digest(vectors.weights)}), but {texts.where} has features of "
            f"{texts.backbone} ({shorten_digest(texts.weights)}). Use two stores with the same "
            "weights, because cosines need a single model"
        )
    models = [name for name, backbones in battery.models.items() if vectors.backbone in backbones]
    return model or next(iter(models), None)


def _rows_of(
    sets: Mapping[str, Sequence[str]],
    embeddings: Mapping[str, Mapping[str, ArrayLike]],
    source_of: Mapping[str, Vectors],
) -> tuple[dict[str, dict[str, ArrayLike]], list[str]]:
    """Return the embeddings of a test's sets, and a sentence for each set that lacks embeddings."""
    rows: dict[str, dict[str, ArrayLike]] = {}
    missing: list[str] = []
    for name, items in sets.items():
        rows[name] = {item: embeddings[name][item] for item in items if item in embeddings[name]}
        if absent := [item for item in items if item not in rows[name]]:
            missing.append(
                f"no embedding for {len(absent)} of the {counted(len(items), 'item')} of {name} "
                f"in {source_of[name].where}, such as {absent[0]!r}"
            )
    return rows, missing


def _select_sets(
    test: AssociationTest, parts: Mapping[str, Vectors], tables: _Tables
) -> dict[str, list[str]]:
    """Return the ids of each set; raise `BiasError` if an id occurs twice in the same source.

    The same id in separate sources, such as images and texts, stands for two different items.
    """
    sets: dict[str, list[str]] = {}
    set_of: dict[tuple[str, str], str] = {}
    for names, source in parts.items():
        for name in names:
            selector = getattr(test, name.lower())
            sets[name] = select(selector, [*tables, source.columns]) if selector else []
            for item in sets[name]:
                if previous := set_of.get((source.where, item)):
                    raise BiasError(
                        f"{item!r} is in set {previous} and again in set {name}. List it only once"
                    )
                set_of[source.where, item] = name
    return sets


def _run_test(
    test: AssociationTest,
    rows: Mapping[str, Mapping[str, ArrayLike]],
    settings: Settings,
    model: str | None,
) -> list[dict[str, Any]]:
    """Return the row of a test, or a row for each item of X if items are tested separately."""
    x, y, a, b = (rows[name] for name in "XYAB")
    tested: dict[str | None, Association] = {}
    sizes = {"x": 1, "y": 0, "a": len(a), "b": len(b)}
    published = None
    if test.y is None:
        tested |= zip(x, associate_each(x, a, b, settings), strict=True)
    else:
        tested[None] = associate(x, y, a, b, settings)
        sizes |= {"x": len(x), "y": len(y)}
        published = test.published.get(model or "")
    return [
        {
            "test": test.name,
            "item": item,
            **sizes,
            **asdict(result),
            "significant": result.p < SIGNIFICANT,
            "published_d": published and published.d,
            "published_significant": published and published.significant,
        }
        for item, result in tested.items()
    ]
