"""Agreement through `of.agreement` and its command, against definitions and other packages."""

import json
from fractions import Fraction
from itertools import combinations, permutations
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
levels = st.lists(st.tuples(st.sampled_from(CODES), st.sampled_from(CODES)), min_size=1)


def make_manifest(films, spans=None, **options):
    """Return a manifest with equal clips, or with `spans`; a dot is an unlabelled clip."""
    items = []
    labels = {}
    for film, annotators in films.items():
        for number in range(max(map(len, annotators.values()))):
            start, end = spans[number] if spans else (number * 60.0, number * 60.0 + 60)
            items.append(Item(f"{film}-{number:02}", film=film, media=film, start=start, end=end))
        for name, marks in annotators.items():
            for number, level in enumerate(marks):
                if level != ".":
                    labels.setdefault(name, {})[f"{film}-{number:02}"] = level
    sets = [
        LabelSet(name, [*level_of], [*level_of.values()], [()] * len(level_of), about=OWN)
        for name, level_of in labels.items()
    ]
    return of.Manifest("made", Items.of(items), **options).with_parts(*sets)


def compare(first, second, spans=None, **options):
    return of.agreement(make_manifest({"c": {"ann": first, "bea": second}}, spans, **options))


def apart(a, b):
    tenths = [TENTHS.get("".join(sorted(pair)), 0) for pair in zip(a, b, strict=True)]
    return Fraction(sum(tenths), 10 * len(tenths))


def exact_gamma(pairs):
    """The mean distance over all orders of one annotator's levels is what gamma expects."""
    if not pairs:
        return None
    a, b = zip(*pairs, strict=True)
    orders = [apart(a, order) for order in permutations(b)]
    expected = sum(orders) / len(orders)
    return close(float(1 - apart(a, b) / expected)) if expected else 1


@given(levels)
def test_gamma_equals_the_exact_definition(pairs):
    pairs = pairs[:5]
    a, b = zip(*pairs, strict=True)
    distance = float(apart(a, b))
    [values] = compare(a, b).pair_films
    assert values["distance"] == close(distance)
    assert values["gamma"] == exact_gamma(pairs)
    drawn = fmean(float(apart([x], [y])) for x in CODES for y in CODES)
    assert values["gamma_uniform"] == close(1 - distance / drawn)
    sure = [pair for pair in pairs if "NS" not in pair]
    assert values["gamma_without_not_sure"] == exact_gamma(sure)


def test_distances_follow_the_scheme():
    even = LabelScheme("tension", (Level("calm", "Calm"), Level("uneasy", "U"), Level("x", "X")))
    [values] = compare(["calm", "x"], ["uneasy", "calm"], scheme=even).pair_films
    assert values["distance"] == 0.75
    assert "gamma_without_not_sure" not in values


MARKS = st.lists(st.sampled_from([".", *CODES]), min_size=5, max_size=5)


@given(st.lists(MARKS.filter(lambda marks: {*marks} != {"."}), min_size=2, max_size=9))
def test_alpha_of_any_number_equals_the_krippendorff_package(people):
    annotators = {f"p{number}": marks for number, marks in enumerate(people)}
    rows = of.agreement(make_manifest({"c": annotators})).levels
    ranks = [[CODES.index(code) if code != "." else np.nan for code in marks] for marks in people]
    ranks = np.array(ranks)
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
    assert (first["start"], first["end"], first["distance"]) == (10, 25, close(0.85))
    assert (first["levels_of_ann"], first["levels_of_bea"]) == (["EN", "HN"], ["S"])
    assert (second["first"], second["distance"]) == ("c-04", close(0.35))
    # A shot inside a longer clip does not end a stretch; only an uncovered gap does.
    spans = [(0, 100), (10, 20), (30, 40), (100, 110), (111, 120)]
    longer, shorter = differences([("EN", "S")] * 5, spans)
    assert (longer["clips"], longer["end"], shorter["clips"]) == (4, 110, 1)


LEVEL = st.sampled_from([*CODES, "."])


@given(st.lists(st.tuples(LEVEL, LEVEL), min_size=1, max_size=12))
def test_differences_equal_a_search_over_all_stretches(labels):
    assume(any("." not in pair for pair in labels))

    def differs(row):
        return 0 <= row < len(labels) and "." not in labels[row] and len(set(labels[row])) == 2

    runs = {
        (start, end - 1)
        for start, end in combinations(range(len(labels) + 1), 2)
        if all(map(differs, range(start, end))) and not differs(start - 1) and not differs(end)
    }
    result = differences(labels, [(None, None)] * len(labels))
    assert {(int(entry["first"][2:]), int(entry["last"][2:])) for entry in result} == runs


def test_a_film_of_one_annotator_is_named(obygaze, tmp_path):
    make_manifest({"one": {"ann": A}, "two": {"bea": B}}).save(tmp_path / "m")
    result = obygaze("annotations", "agreement", tmp_path / "m", code=3)
    assert "no clip has two annotators' labels" in result.output


def test_pairs_and_concepts_are_compared_as_by_other_packages():
    """Each annotator has one more clip, and their clips are in different orders."""
    chance = np.random.default_rng(0)
    ids = [f"c{number}" for number in range(30)]
    ranks = chance.integers(0, 4, (2, 31))
    looks = chance.integers(0, 2, (2, 31))
    sets = []
    for who, order in enumerate((["y", *ids], ["z", *ids][::-1])):
        own = slice(None, None, -1 if who else 1)
        levels = [CODES[rank] for rank in ranks[who, own]]
        concepts = [("Look",) * look for look in looks[who, own]]
        sets.append(LabelSet("ab"[who], order, levels, concepts, about=OWN))
    items = Items.of([Item(name, film=f"f{name[-1] in '02468'}") for name in ["z", *ids, "y"]])
    result = of.agreement(of.Manifest("m", items).with_parts(*sets))

    both = ranks[:, 1:]
    [pair] = result.pairs
    assert (pair["clips"], pair["equal"]) == (30, close(accuracy_score(*both)))
    assert pair["kappa"] == close(cohen_kappa_score(*both))
    counts = [[row[code] for code in CODES] for row in result.pair_levels]
    assert counts == confusion_matrix(*both).tolist()
    [row] = result.concepts
    assert [row["share_of_a"], row["share_of_b"]] == close(looks.mean(axis=1).tolist())
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
