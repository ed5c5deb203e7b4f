"""Run a battery on embeddings: a row for each test, beside the published number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
        row = asdict(self)
        association, published = row.pop("association"), row.pop("published")
        return {
            **row,
            **association,
            "significant": self.significant,
            "published_d": published and published.d,
            "published_significant": published and published.significant,
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
        return {**vars(self), "rows": [row.to_dict() for row in self.rows]}


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
    parts = {"XYAB": vectors} if texts is None else {"XY": vectors, "AB": texts}
    sources = {name: source for names, source in parts.items() for name in names}
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
    embeddings: dict[str, Mapping[str, NDArray[Any]]] = {}
    for names, source in parts.items():  # each is read once, for all tests together
        ids = dict.fromkeys(
            item for sets in selected.values() for name in names for item in sets.get(name, ())
        )
        found = dict(zip(*source.read([*ids]), strict=True))
        embeddings |= dict.fromkeys(names, found)
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
            rows += _results(test, sets, embeddings, settings, model)
        except BiasError as problem:
            left_out[test.name] = str(problem)
    if not rows:
        (name, reason), *others = left_out.items()
        more = f" (and {counted(len(others), 'more test')} cannot be run)" if others else ""
        raise BiasError(f"{name}: {reason}{more}")
    return BatteryResults(battery.name, model, tuple(rows), left_out, tuple(notes))


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


def _results(
    test: AssociationTest,
    sets: _Sets,
    embeddings: _Embeddings,
    settings: Settings,
    model: str | None,
) -> list[TestResult]:
    rows: dict[str, list[NDArray[Any]]] = {name: [] for name in "XYAB"}
    for name, items in sets.items():
        for item in items:
            if (row := embeddings[name].get(item)) is None:
                continue
            if not row.any():
                raise BiasError(f"the embedding of {item!r}, of {name}, has length zero")
            if not np.isfinite(row).all():
                raise BiasError(f"the embedding of {item!r}, of {name}, is not all finite numbers")
            rows[name].append(row)
    x, y, a, b = (len(rows[name]) for name in "XYAB")
    if "Y" in sets:
        association = associate(rows["X"], rows["Y"], rows["A"], rows["B"], settings)
        published = test.published.get(model or "")
        return [TestResult(test.name, None, x, y, a, b, association, published)]
    alone = [item for item in sets["X"] if item in embeddings["X"]]
    associations = associate_each(rows["X"], rows["A"], rows["B"], settings)
    return [
        TestResult(test.name, item, 1, y, a, b, association, None)
        for item, association in zip(alone, associations, strict=True)
    ]
