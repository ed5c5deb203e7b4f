"""Agreement through `of.agreement` and its command, against definitions and other packages."""

import json
import re
from fractions import Fraction
from itertools import permutations
from statistics import fmean

import krippendorff
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, cohen_kappa_score, confusion_matrix

import obygaze_features as of
from obygaze_features.manifests import Item, Items, LabelScheme, LabelSet, Level
from tests.kit.files import write
from tests.kit.floats import close

A = ["EN", "EN", "HN", "S", "EN", "NS", "EN", "S", "HN", "EN"]
B = ["EN", "HN", "HN", "NS", "EN", "S", "EN", "S", "EN", "EN"]
CODES = ["EN", "HN", "NS", "S"]
#: In tenths, as the paper prints it.
TENTHS = {"ENHN": 3, "ENNS": 7, "ENS": 10, "HNNS": 4, "HNS": 7, "NSS": 3}
OWN = {"origin": "annotator"}
CODE = st.sampled_from(CODES)


def make_manifest(films, spans=None, **options):
    """Return a manifest with equal clips, or with `spans`; a dot is an unlabelled clip."""
    items = []
    labels = {}
    for film, annotators in films.items():
        for number in range(max(map(len, annotators.values()))):
            minute = number * 60.0
            start, end = spans[number] if spans else (minute, minute + 60)
            name = f"{film}-{number:02}"
            items.append(Item(name, film=film, media=film, start=start, end=end))
        for name, marks in annotators.items():
            for number, level in enumerate(marks):
                if level != ".":
                    labels.setdefault(name, {})[f"{film}-{number:02}"] = level
    manifest = of.Manifest("made", Items.of(items), **options)
    for name, level_of in labels.items():
        bare = [()] * len(level_of)
        own = LabelSet(name, [*level_of], [*level_of.values()], bare, about=OWN)
        manifest = manifest.with_parts(own)
    return manifest


def compare(first, second, spans=None, **options):
    return of.agreement(make_manifest({"c": {"ann": first, "bea": second}}, spans, **options))


def apart(a, b):
    pairs = map(sorted, zip(a, b, strict=True))
    tenths = [TENTHS.get("".join(pair), 0) for pair in pairs]
    return Fraction(sum(tenths), 10 * len(tenths))


def exact_gamma(pairs):
    """The mean distance over all orders of one annotator's levels is what gamma expects."""
    if not pairs:
        return None
    a, b = zip(*pairs, strict=True)
    orders = [apart(a, order) for order in permutations(b)]
    expected = sum(orders) / len(orders)
    return close(float(1 - apart(a, b) / expected)) if expected else 1


@given(st.lists(st.tuples(CODE, CODE), min_size=1, max_size=5))
def test_gamma_equals_the_exact_definition(pairs):
    a, b = zip(*pairs, strict=True)
    distance = float(apart(a, b))
    [values] = compare(a, b).pair_films
    assert values["distance"] == close(distance)
    assert values["gamma"] == exact_gamma(pairs)
    drawn = fmean(apart([x], [y]) for x in CODES for y in CODES)
    assert values["gamma_uniform"] == close(1 - distance / drawn)
    sure = [pair for pair in pairs if "NS" not in pair]
    assert values["gamma_without_not_sure"] == exact_gamma(sure)


def test_distances_follow_the_scheme():
    levels = (Level("calm", "Calm"), Level("uneasy", "U"), Level("x", "X"))
    scheme = LabelScheme("tension", levels)
    [values] = compare(["calm", "x"], ["uneasy", "calm"], scheme=scheme).pair_films
    assert values["distance"] == 0.75
    assert "gamma_without_not_sure" not in values


MARKS = st.lists(st.sampled_from([".", *CODES]), min_size=5, max_size=5)


@given(st.lists(MARKS.filter(lambda marks: {*marks} != {"."}), min_size=2, max_size=9))
def test_alpha_of_any_number_equals_the_krippendorff_package(people):
    annotators = {f"p{number}": marks for number, marks in enumerate(people)}
    rows = of.agreement(make_manifest({"c": annotators})).levels
    rank_of = {"EN": 0, "HN": 1, "NS": 2, "S": 3, ".": np.nan}
    ranks = np.array([[rank_of[code] for code in marks] for marks in people])
    paired = ranks[:, (ranks >= 0).sum(axis=0) > 1]
    for row, level in zip(rows, ("nominal", "ordinal"), strict=False):
        if len({*paired[paired >= 0]}) < 2:
            assert row["alpha"] is None
            continue
        expected = krippendorff.alpha(
            reliability_data=ranks,
            level_of_measurement=level,
            value_domain=[0.0, 1.0, 2.0, 3.0],
        )
        assert row["alpha"] == pytest.approx(expected, abs=1e-9)


def differences(pairs, spans):
    return compare(*zip(*pairs, strict=True), spans).differences


def test_differing_stretches_are_ordered_by_length_and_end_at_gaps():
    labels = [("EN", "EN"), ("EN", "S"), ("HN", "S"), ("S", "S"), ("EN", "HN"), ("NS", "HN")]
    spans = [(0, 10), (10, 20), (20, 25), (25, 40), (40, 41), (41, 50)]
    first, second = differences(labels, spans)
    assert (first["first"], first["last"], first["seconds"]) == ("c-01", "c-02", 15)
    assert (first["start"], first["end"]) == (10, 25)
    assert first["distance"] == close(0.85)
    assert (first["levels_of_ann"], first["levels_of_bea"]) == (["EN", "HN"], ["S"])
    assert (second["first"], second["distance"]) == ("c-04", close(0.35))
    # A shot inside a longer clip does not end a stretch; only an uncovered gap does.
    spans = [(0, 100), (10, 20), (100, 110), (111, 120)]
    longer, shorter = differences([("EN", "S")] * 4, spans)
    assert (longer["clips"], longer["end"], shorter["clips"]) == (3, 110, 1)


def test_stretches_of_equal_length_are_ordered_by_clips_and_then_by_distance():
    near = ("EN", "HN")
    labels = [near, ("S", "S"), ("EN", "S"), ("S", "S"), near, near]
    stretches = differences(labels, [(None, None)] * 6)
    assert [stretch["first"] for stretch in stretches] == ["c-04", "c-02", "c-00"]


LEVEL = st.sampled_from([*CODES, "."])


@given(st.lists(st.tuples(LEVEL, LEVEL), min_size=1, max_size=12))
def test_differences_are_the_longest_stretches_of_differing_clips(labels):
    assume(any("." not in pair for pair in labels))

    def mark(pair):
        return "x" if "." not in pair and len({*pair}) == 2 else " "

    names = [f"c-{row:02}" for row in range(len(labels))]
    expected = []
    for run in re.finditer("x+", "".join(map(mark, labels))):
        clips = names[run.start() : run.end()]
        expected.append((clips[0], clips[-1]))
    result = differences(labels, [(None, None)] * len(labels))
    assert sorted((entry["first"], entry["last"]) for entry in result) == expected


def test_a_film_of_one_annotator_is_named(obygaze, tmp_path):
    films = {"one": {"ann": A}, "two": {"bea": B}}
    make_manifest(films).save(tmp_path / "m")
    result = obygaze("annotations", "agreement", tmp_path / "m", code=3)
    assert "no clip has two annotators' labels" in result.output


def test_pairs_and_concepts_are_compared_as_by_other_packages():
    """Two have one more clip each, in different orders; a third has labelled nothing yet."""
    chance = np.random.default_rng(0)
    ids = [f"c{number}" for number in range(30)]
    ranks = chance.integers(0, 4, (2, 31))
    looks = chance.integers(0, 2, (2, 31))

    def label(who, clips, step):
        levels = [CODES[rank] for rank in ranks[who, ::step]]
        concepts = [("Look",) * look for look in looks[who, ::step]]
        return LabelSet("ab"[who], clips[::step], levels, concepts, about=OWN)

    items = [Item(name, film=name[-1]) for name in ["z", *ids, "y"]]
    manifest = of.Manifest("m", Items.of(items))
    idle = LabelSet("c", [], [], [], about=OWN)
    sets = (label(0, ["y", *ids], 1), label(1, ["z", *ids], -1), idle)
    result = of.agreement(manifest.with_parts(*sets))

    both = ranks[:, 1:]
    [pair] = result.pairs
    assert pair["clips"] == 30
    assert pair["equal"] == close(accuracy_score(*both))
    assert pair["kappa"] == close(cohen_kappa_score(*both))
    counts = [[row[code] for code in CODES] for row in result.pair_levels]
    assert counts == confusion_matrix(*both).tolist()
    [row] = result.concepts
    shares = looks.mean(axis=1)
    assert [row["share_of_a"], row["share_of_b"]] == close(shares.tolist())
    assert row["share"] == close(shares.mean())
    alpha = krippendorff.alpha(looks[:, 1:], level_of_measurement="nominal")
    assert row["alpha"] == close(alpha)


MADE = [
    ("ruled", {"origin": "rule", "annotator": "by mistake"}, "rule", False),
    ("vouched", {"rule": "as in theirs.csv"}, "", True),
    ("derived", {"rule": "visual concepts only"}, "rule", False),
    ("more", {"of": {"both": {"of": {"vouched": {}}}, "derived": {"rule": "v"}}}, "merge", False),
]


def test_the_annotator_of_a_label_set_is_read_from_its_json(tmp_path):
    folder = tmp_path / "m"
    of.Manifest("m", Items.of([Item("a", film="f")])).save(folder)
    for name, about, _, _ in MADE:
        write(folder / f"labels/{name}.csv", "id,level", "a,S")
        write(folder / f"labels/{name}.json", json.dumps(about))
    manifest = of.Manifest.load(folder)
    for name, _, origin, is_one in MADE:
        assert manifest.labels(name).origin == origin
        assert (name in manifest.annotators) == is_one
    assert manifest.labels("more").merged_annotators == ["vouched"]
