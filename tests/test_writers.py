"""Whatever a public writer accepts, the reader reads back equal; what it refuses leaves no trace.

Values are mostly valid, so that many are accepted, and sometimes odd. Times are in microseconds.
"""

from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import obygaze_features as of
from obygaze_features.annotations import Film, Segment
from obygaze_features.manifests import (
    Concept,
    Item,
    Items,
    LabelScheme,
    LabelSet,
    Level,
    Run,
    RunSet,
    Split,
)
from obygaze_features.store import ArraySpec, Done, Failed, Status, StoreWriter
from tests.kit import store as toys

#: A `StoreError`, `ManifestError` or `UsageError` is a ValueError; so is an unencodable text.
REFUSALS = (ValueError, TypeError, of.ObygazeError)
ODD = st.sampled_from([
    "", "A", "a.b", "a/b", "..", " a", "a,b", 'a"b', "a|b", "a\nb", "a\rb", "a\0b", "=1", "\ufeffa",
    "\ud800", "\x85", "é", "a" * 200, "null", None, 1,
])  # fmt: skip
KEY = st.text(max_size=3)


def mostly(*valid, usual=None, odd=ODD):
    """Draw one of 24 values from `odd`; `st.one_of` would draw more of them."""
    if valid:
        usual = st.sampled_from(valid)
    return st.sampled_from(range(24)).flatmap(lambda number: odd if number == 23 else usual)


TEXT = mostly(usual=KEY)
MICROSECONDS = st.integers(-9, 9_000_000).map(lambda time: time / 1e6)
TIME = st.one_of(st.floats(), MICROSECONDS, ODD)
NAME = mostly("a", "b")
SPAN = mostly((0.0, 1.5), (2, 3), odd=st.tuples(TIME, TIME))
LEVEL = mostly("S", "EN", odd=st.one_of(ODD, st.just("Sure")))
CONCEPTS = mostly((), ("Look", "Body"), ("Body", "Look"), odd=st.tuples(ODD.filter(bool)))
ABOUTS = st.dictionaries(st.sampled_from(["origin", "annotator", "of", "rule"]), TEXT, max_size=1)
ABOUT = mostly({}, {"origin": "merge", "of": {"a": {}}}, odd=ABOUTS)
TEXTS = st.fixed_dictionaries({}, optional=dict.fromkeys(["source", "licence", "citation"], TEXT))
ANY_LEVEL = st.builds(Level, NAME, NAME, st.just(()))
LEVELS = st.lists(ANY_LEVEL, min_size=1, max_size=2).map(tuple)
CONCEPT_LISTS = st.lists(st.builds(Concept, NAME), max_size=1).map(tuple)
SCHEME = mostly(of.obygaze_scheme(), odd=st.builds(LabelScheme, TEXT, LEVELS, CONCEPT_LISTS))


@contextmanager
def refusals(folder):
    """Let a writer refuse, if it leaves nothing behind."""
    before = sorted(folder.rglob("[!.]*.[cj]s*"))
    try:
        yield
    except REFUSALS:
        assert sorted(folder.rglob("[!.]*.[cj]s*")) == before


def in_microseconds(value):
    if value.start is None:
        return value
    return replace(value, start=round(value.start, 6), end=round(value.end, 6))


@st.composite
def columns(draw, cells, size):
    size = draw(mostly(size, odd=st.integers(0, 3)))
    return draw(st.lists(cells, min_size=size, max_size=size))


@st.composite
def items(draw):
    size = draw(st.integers(1, 3))
    rows = []
    for number in range(size):
        span = draw(st.one_of(st.just((None, None)), SPAN))
        kind = draw(st.sampled_from(["clip", "image", "text"]))
        id_ = draw(mostly(f"i{number}", f"A.b-_+{number}"))
        rows.append(Item(id_, kind, draw(NAME), draw(NAME), draw(TEXT), *span))
    names = mostly("x", "y z", odd=st.one_of(KEY, st.sampled_from(["film", " x", "\x85"])))
    return Items.of(rows, draw(st.dictionaries(names, columns(TEXT, size), max_size=1)))


@st.composite
def parts(draw, ids):
    unique = draw(mostly(True, odd=st.just(False)))
    own = draw(st.lists(mostly(*ids), max_size=3, unique=unique))
    name = draw(mostly("p", "q", "r"))
    about = draw(ABOUT)
    size = len(own)
    extra = draw(st.one_of(st.just([]), columns(TEXT, size)))
    kind = draw(st.sampled_from([LabelSet, Split, RunSet]))
    if kind is LabelSet:
        labels = draw(columns(LEVEL, size)), draw(columns(CONCEPTS, size))
        return LabelSet(
            name, own, *labels, extra, {draw(mostly("x", odd=KEY)): extra} if extra else {}, about
        )
    if kind is Split:
        return Split(name, own, draw(columns(mostly(0, 1, odd=TIME), size)), extra, about)
    cut = draw(st.integers(0, 3))
    first = Run(draw(mostly("x")), own[:cut], own[cut:])
    second = Run(draw(mostly("y")), own, [])
    count = draw(st.integers(0, 2)) if own else 0
    return RunSet(name, [first, second][:count], about)


def all_parts(manifest):
    sets = {("labels", name): manifest.labels(name) for name in manifest.label_names}
    sets |= {("splits", name): manifest.split(name) for name in manifest.split_names}
    return sets | {("runs", name): manifest.runs(name) for name in manifest.run_names}


@given(st.data())
def test_manifests(data):
    with TemporaryDirectory() as folder, refusals(Path(folder)):
        path = Path(folder, "m")
        manifest = of.Manifest(data.draw(TEXT), data.draw(items()), data.draw(SCHEME))
        manifest = replace(manifest, **data.draw(TEXTS))
        manifest = manifest.with_parts(data.draw(parts(manifest.ids)))
        manifest.save(path)

        loaded = of.Manifest.load(path)
        assert (loaded.digest, loaded.items.extra) == (manifest.digest, manifest.items.extra)
        assert [*map(in_microseconds, loaded)] == [*map(in_microseconds, manifest)]
        for name in ("name", "scheme", "source", "licence", "citation", "default_labels"):
            assert getattr(loaded, name) == getattr(manifest, name), name
        with refusals(path):
            part = data.draw(parts(manifest.ids))
            loaded.add(part)
            manifest.add(part)
        assert all_parts(of.Manifest.load(path)) == all_parts(manifest) == all_parts(loaded)


@given(st.data())
def test_timelines(data):
    with TemporaryDirectory() as folder, refusals(Path(folder)):

        def in_span(film, who, span, *marks):
            return Segment(film, who, *span, *marks)

        segments = st.builds(in_span, NAME, NAME, SPAN, LEVEL, CONCEPTS, TEXT)
        films = st.dictionaries(KEY, st.builds(Film, TEXT, mostly(None, 9.5, odd=TIME), TEXT))
        ours = of.Timelines(
            data.draw(TEXT) or "t",
            data.draw(st.lists(segments, max_size=3)),
            data.draw(SCHEME),
            data.draw(films),
            names=data.draw(st.dictionaries(KEY, TEXT, max_size=1)),
            **data.draw(TEXTS),
        )
        ours.save(Path(folder, "t"))
        read = of.Timelines.load(Path(folder, "t"))
        assert read == replace(ours, segments=list(map(in_microseconds, ours.segments)))


NUMBER = mostly(0.0, 1.5, -2.0, 7.0, odd=st.floats())
SPECS = st.builds(
    ArraySpec,
    mostly("native", "frames", odd=st.sampled_from(["ids", "a b", "../x", "", "x" * 300])),
    mostly((2,), (1, 2), odd=st.sampled_from([(0,), (2, -1)])),
    mostly("float32", "float16", "int32", odd=st.sampled_from(["int64", "U4", "object"])),
    TEXT,
    columns=mostly((), odd=st.tuples(TEXT, TEXT)),
)


@st.composite
def outcomes(draw, specs):
    status = draw(mostly(Status.DONE, Status.MISSING, odd=st.sampled_from([*Status, 200, -1])))
    if status != Status.DONE:
        return Failed(status, draw(TEXT), draw(TEXT))
    values = {}
    for spec in specs:
        size = np.zeros(spec.shape).size
        values[spec.name] = np.array(draw(st.lists(NUMBER, min_size=size, max_size=size)))
        values[spec.name].shape = spec.shape
    return Done(values, draw(TEXT))


@given(st.data())
def test_stores(data):
    with TemporaryDirectory() as folder, refusals(Path(folder)):
        path = Path(folder, "s.zarr")
        specs = data.draw(st.lists(SPECS, min_size=1, max_size=2, unique_by=lambda spec: spec.name))
        recipe = replace(
            toys.plain_recipe(*specs),
            name=data.draw(TEXT),
            precision=data.draw(TEXT),
            preprocessing=data.draw(st.dictionaries(KEY, st.floats(), max_size=1)),
        )
        about = {key: data.draw(TEXT) for key in ("licence", "citation")}
        manifest = of.Manifest(data.draw(TEXT), data.draw(items()), **about)
        writer = StoreWriter.create(
            path, manifest.items, recipe, manifest.about, block_rows=data.draw(mostly(1, 2))
        )

        written = {}
        for row in range(len(manifest)):
            outcome = data.draw(outcomes(specs))
            with refusals(path):
                writer.write_rows({row: outcome})
                written[row] = outcome
        attributes = of.open_store(path).attributes
        for _ in range(2):
            names = mostly("name", "licence", "citation", odd=st.sampled_from(["state", "n", "x"]))
            changes = data.draw(st.dictionaries(names, TEXT, max_size=2))
            with refusals(path):
                of.set_texts(path, changes)
                attributes |= changes
            store = of.open_store(path)
            assert of.verify(store) == []
            assert {**attributes, "state": store.attributes["state"]} == store.attributes
            assert store.items.digest == manifest.digest
            for row, outcome in written.items():
                id_ = manifest.ids[row]
                if isinstance(outcome, Failed):
                    assert (store.failures[id_], store.status[row]) == (
                        outcome.reason,
                        outcome.status,
                    )
                elif store.status[row] == Status.DONE:
                    for spec in specs:
                        value = outcome.values[spec.name].astype(spec.dtype)
                        assert store[id_][spec.name].tolist() == value.tolist()
            of.finalise(path, allow_incomplete=True)
