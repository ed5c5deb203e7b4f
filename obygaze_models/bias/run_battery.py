"""Run a battery on embeddings: a row for each test, beside the published number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from obygaze_features.common.text import counted, join_some, shorten_digest, unknown_name
from obygaze_features.errors import BiasError, UsageError
from obygaze_models.bias.association import Association, Settings, associate, associate_each
from obygaze_models.bias.battery import AssociationTest, Battery, Published, select
from obygaze_models.bias.vectors import Vectors

SIGNIFICANT = 0.05
"""Below this p a * is printed beside d, as in the published tables."""
_Columns = Mapping[str, Sequence[str]]
_Sets = Mapping[str, Sequence[str]]
_Embeddings = Mapping[str, Mapping[str, NDArray[Any]]]


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
        return {
            "test": self.test,
            "item": self.item,
            "x": self.x,
            "y": self.y,
            "a": self.a,
            "b": self.b,
            **asdict(self.association),
            "significant": self.significant,
            "published_d": self.published and self.published.d,
            "published_significant": self.published and self.published.significant,
        }


@dataclass(frozen=True)
class BatteryResults:
    """A battery's results; `left_out` has the reason for each test left out, `notes` lost items."""

    battery: str
    model: str | None
    rows: tuple[TestResult, ...]
    left_out: Mapping[str, str]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON values."""
        return {
            "battery": self.battery,
            "model": self.model,
            "rows": [row.to_dict() for row in self.rows],
            "left_out": dict(self.left_out),
            "notes": list(self.notes),
        }


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
    model = model or battery.model_of(vectors.backbone)
    sources = {"X": vectors, "Y": vectors, "A": texts or vectors, "B": texts or vectors}
    selected: dict[str, _Sets] = {}
    rows: list[TestResult] = []
    left_out: dict[str, str] = {}
    notes: list[str] = []
    for test in battery.tests:
        try:
            selected[test.name] = {
                name: select(selector, [*tables, sources[name].columns])
                for name, selector in test.sets.items()
            }
        except BiasError as problem:
            left_out[test.name] = str(problem)
    embeddings = _read(selected.values(), sources)
    for test in battery.tests:
        if test.name in left_out:
            continue
        try:
            sets = selected[test.name]
            _refuse_overlap(sets, separate=sources["A"].where != vectors.where)
            missing = _missing_items(sets, embeddings, sources)
            if missing and not skip_missing:
                raise BiasError(f"{missing[0]}; to leave them out: --skip-missing")
            notes += [f"{test.name}: {text}" for text in missing]
            sets = {
                name: [item for item in items if item in embeddings[name]]
                for name, items in sets.items()
            }
            _refuse_undirected(sets, embeddings)
            rows += _results(test, sets, embeddings, settings, model)
        except BiasError as problem:
            left_out[test.name] = str(problem)
    if not rows:
        (name, reason), *others = left_out.items()
        more = f" (and {counted(len(others), 'more test')} cannot be run)" if others else ""
        raise BiasError(f"{name}: {reason}{more}")
    return BatteryResults(battery.name, model, tuple(rows), left_out, tuple(notes))


def _read(selected: Iterable[_Sets], sources: Mapping[str, Vectors]) -> _Embeddings:
    """Set -> id -> embedding, of all tests together: each source is read only once."""
    ids: dict[int, dict[str, None]] = {id(source): {} for source in sources.values()}
    for sets in selected:
        for name, items in sets.items():
            ids[id(sources[name])].update(dict.fromkeys(items))
    unique = {id(source): source for source in sources.values()}
    read = {
        key: dict(zip(*source.read([*ids[key]]), strict=True)) for key, source in unique.items()
    }
    return {name: read[id(source)] for name, source in sources.items()}


def _missing_items(
    sets: _Sets, embeddings: _Embeddings, sources: Mapping[str, Vectors]
) -> list[str]:
    """For each set that lacks embeddings, how many and an example."""
    texts = []
    for name, items in sets.items():
        if missing := [item for item in items if item not in embeddings[name]]:
            texts.append(
                f"{len(missing)} of the {counted(len(items), 'item')} of {name} have no embedding "
                f"in {sources[name].where}, such as {missing[0]!r}"
            )
    return texts


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


def _refuse_undirected(sets: _Sets, embeddings: _Embeddings) -> None:
    """Raise `BiasError` if an embedding has no direction; `associate` cannot name its id."""
    for name, items in sets.items():
        for item in items:
            if not embeddings[name][item].any():
                raise BiasError(f"the embedding of {item!r}, of {name}, has length zero")
            if not np.isfinite(embeddings[name][item]).all():
                raise BiasError(f"the embedding of {item!r}, of {name}, is not all finite numbers")


def _results(
    test: AssociationTest,
    sets: _Sets,
    embeddings: _Embeddings,
    settings: Settings,
    model: str | None,
) -> list[TestResult]:
    rows = {name: [embeddings[name][item] for item in items] for name, items in sets.items()}
    x, y, a, b = (len(rows.get(name, [])) for name in "XYAB")
    if "Y" in rows:
        association = associate(rows["X"], rows["Y"], rows["A"], rows["B"], settings)
        published = test.published.get(model) if model else None
        return [TestResult(test.name, None, x, y, a, b, association, published)]
    associations = associate_each(rows["X"], rows["A"], rows["B"], settings)
    return [
        TestResult(test.name, item, 1, y, a, b, association, None)
        for item, association in zip(sets["X"], associations, strict=True)
    ]
