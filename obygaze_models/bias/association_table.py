"""A battery run on embeddings: a row a test, beside what was published."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.text import counted, join_some, unknown_name
from obygaze_features.errors import BiasError, UsageError
from obygaze_models.bias.association import Association, Settings, associate, each_alone
from obygaze_models.bias.battery import AssociationTest, Battery, Published, select
from obygaze_models.bias.vectors import Vectors
from obygaze_models.figures import Line, Point, dot_plot

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["SIGNIFICANT", "Row", "Table", "association_figure", "printed_p", "run_battery"]

Columns = Mapping[str, Sequence[str]]
_Sets = Mapping[str, Sequence[str]]
_Embeddings = Mapping[str, Mapping[str, NDArray[Any]]]
SIGNIFICANT = 0.05
"""Below this p a * stands beside d, as in the published tables."""


@dataclass(frozen=True)
class Row:
    """What a test found: of all its X, or of one `item` of X where it is tested alone.

    `x`, `y`, `a` and `b` are how many there are; `published` is of the same model, if there is
    a figure.
    """

    test: str
    item: str | None
    x: int
    y: int
    a: int
    b: int
    found: Association
    published: Published | None

    @property
    def name(self) -> str:
        """The test, and the item."""
        return self.test if self.item is None else f"{self.test}: {self.item}"

    def flat(self) -> dict[str, Any]:
        """As one row of a table, or of JSON."""
        return {
            "test": self.test,
            "item": self.item,
            "x": self.x,
            "y": self.y,
            "a": self.a,
            "b": self.b,
            **{field.name: getattr(self.found, field.name) for field in fields(self.found)},
            "significant": self.found.p < SIGNIFICANT,
            "published_d": self.published and self.published.d,
            "published_significant": self.published and self.published.significant,
        }


@dataclass(frozen=True)
class Table:
    """A battery's rows; `left_out` says why tests are not there, `notes` which items are not."""

    battery: str
    model: str | None
    rows: tuple[Row, ...]
    left_out: Mapping[str, str]
    notes: tuple[str, ...]


def run_battery(
    battery: Battery,
    vectors: Vectors,
    texts: Vectors | None = None,
    *,
    tables: Sequence[Columns] = (),
    settings: Settings = Settings(),  # noqa: B008
    model: str | None = None,
    skip_missing: bool = False,
) -> Table:
    """Run all tests of a battery.

    A test that cannot be run is left out, unless none can.

    Parameters
    ----------
    battery
        From `read_battery`.
    vectors, texts
        Where the embeddings of X and Y are, and those of A and B if they are elsewhere.
    tables
        Columns of manifests to select by, before those of the stores; see `manifest_columns`.
    settings
        How it is tested.
    model
        Whose published figures to show; by default those of the store's backbone.
    skip_missing
        Do without items that have no embedding.
    """
    if model is not None and model not in battery.models:
        if not battery.models:
            raise UsageError(f"{battery.name} has no published figures; leave out --published")
        raise UsageError(unknown_name("published model", model, battery.models))
    if texts is not None and vectors.weights and texts.weights not in ("", vectors.weights):
        raise BiasError(
            f"{vectors.where} is of {vectors.backbone} (weights {vectors.weights[:12]}), "
            f"{texts.where} of {texts.backbone} ({texts.weights[:12]}): of two models no "
            "cosines can be taken"
        )
    model = model or battery.model_of(vectors.backbone)
    places = {"X": vectors, "Y": vectors, "A": texts or vectors, "B": texts or vectors}
    chosen: dict[str, _Sets] = {}
    rows: list[Row] = []
    left_out: dict[str, str] = {}
    notes: list[str] = []
    for test in battery.tests:
        try:
            chosen[test.name] = {
                name: select(of, [*tables, places[name].columns]) for name, of in test.sets.items()
            }
        except BiasError as problem:
            left_out[test.name] = str(problem)
    embeddings = _read(chosen.values(), places)
    for test in battery.tests:
        if test.name in left_out:
            continue
        sets = chosen[test.name]
        try:
            _refuse_overlap(sets, apart=places["A"].where != vectors.where)
            lost = {
                name: [one for one in ids if one not in embeddings[name]]
                for name, ids in sets.items()
            }
            for name in filter(lost.get, lost):
                said = (
                    f"{len(lost[name])} of the {counted(len(sets[name]), 'item')} of {name} "
                    f"have no embedding in {places[name].where}, such as {lost[name][0]!r}"
                )
                if not skip_missing:
                    raise BiasError(f"{said}; to do without them: --skip-missing")
                notes.append(f"{test.name}: {said}")
            have = {
                name: [one for one in ids if one in embeddings[name]] for name, ids in sets.items()
            }
            _refuse_pointless(have, embeddings)
            rows += _rows(test, have, embeddings, settings, model)
        except BiasError as problem:
            left_out[test.name] = str(problem)
    if not rows:
        (name, why), *others = left_out.items()
        more = f" (and {counted(len(others), 'more test')} cannot be run)" if others else ""
        raise BiasError(f"{name}: {why}{more}")
    return Table(battery.name, model, tuple(rows), left_out, tuple(notes))


def association_figure(table: Table) -> Figure:
    """The effect sizes with their intervals, beside the published ones."""
    points = [
        Point(
            row.item or row.test,
            row.found.d,
            row.found.low,
            row.found.high,
            row.published.d if row.published else None,
            group=row.test if row.item else "",
            mark="*" if row.found.p < SIGNIFICANT else "",
            reference_mark="*" if row.published and row.published.significant else "",
            note=printed_p(row.found.p),
        )
        for row in table.rows
    ]
    said = "; ".join(f"{row.name}: {row.found.d:+.2f}, p {row.found.p:.3g}" for row in table.rows)
    return dot_plot(
        points,
        title=f"{counted(len(table.rows), 'association test')}: {table.battery}"
        + (f" (published: {table.model})" if any(row.published for row in table.rows) else ""),
        axis="effect size d",
        description=said,
        lines=[Line(0.0, "no association")],
        interval="95% interval over draws of items",
        value="here",
        signed=True,
        note="p",
        footnote=f"* p < {SIGNIFICANT}, one-sided. {_sources(table)}",
    )


def printed_p(p: float) -> str:
    """A p as tables and figures have it.

    Examples
    --------
    >>> printed_p(0.0142857), printed_p(0.00002)
    ('0.0143', '2.0e-05')
    """
    return f"{p:.4f}" if p >= 0.0001 else f"{p:.1e}"


def _sources(table: Table) -> str:
    """What p and the interval are found by, which is not the same."""
    ways = {
        "exact": "from all partitions",
        "sampled": "from drawn partitions",
    }
    found = [ways.get(row.found.p_is, "from a normal distribution") for row in table.rows]
    said = f"p is {' or '.join(dict.fromkeys(found))}"
    if all(row.found.low is None for row in table.rows):
        return f"{said}."
    return f"{said}, the interval from draws of items with replacement: they may disagree."


def _read(chosen: Iterable[_Sets], places: Mapping[str, Vectors]) -> _Embeddings:
    """Set -> id -> embedding, of all tests at once, as a file is read from end to end."""
    wanted: dict[int, dict[str, None]] = {id(place): {} for place in places.values()}
    for sets in chosen:
        for name, ids in sets.items():
            wanted[id(places[name])].update(dict.fromkeys(ids))
    read = {
        id(place): dict(zip(*place.read([*wanted[id(place)]]), strict=True))
        for place in {id(place): place for place in places.values()}.values()
    }
    return {name: read[id(place)] for name, place in places.items()}


def _refuse_overlap(sets: _Sets, *, apart: bool) -> None:
    """Raise `BiasError` if an item is in two sets, or in one of them twice, or a set is empty."""
    for name, ids in sets.items():
        if not ids:
            raise BiasError(f"the set {name} is empty")
        if len(set(ids)) != len(ids):
            twice = next(one for one in ids if ids.count(one) > 1)
            raise BiasError(f"the set {name} has {twice!r} twice")
    for one, other in combinations(sets, 2):
        # Ids of images and of texts that lie apart are of different things.
        if (apart and (one in "XY") != (other in "XY")) or not (
            both := sorted(set(sets[one]) & set(sets[other]))
        ):
            continue
        raise BiasError(f"the sets {one} and {other} overlap: {join_some([*map(repr, both)], 3)}")


def _refuse_pointless(sets: _Sets, embeddings: _Embeddings) -> None:
    """Raise `BiasError` if an embedding points nowhere; `associate` knows no ids to name."""
    for name, ids in sets.items():
        for one in ids:
            if not embeddings[name][one].any():
                raise BiasError(f"the embedding of {one!r}, of {name}, has length zero")
            if not np.isfinite(embeddings[name][one]).all():
                raise BiasError(f"the embedding of {one!r}, of {name}, is not all finite numbers")


def _rows(
    test: AssociationTest,
    ids: _Sets,
    embeddings: _Embeddings,
    settings: Settings,
    model: str | None,
) -> list[Row]:
    of = {name: [embeddings[name][one] for one in of] for name, of in ids.items()}
    sizes = len(of["X"]), len(of.get("Y", [])), len(of["A"]), len(of["B"])
    published = test.published.get(model) if model else None
    if "Y" in of:
        found = associate(of["X"], of["Y"], of["A"], of["B"], settings)
        return [Row(test.name, None, *sizes, found, published)]
    each = each_alone(of["X"], of["A"], of["B"], settings)
    return [
        Row(test.name, item, 1, *sizes[1:], found, None)
        for item, found in zip(ids["X"], each, strict=True)
    ]
