"""The paper's gamma: its worked cases, what must hold for any levels, and the command."""

import csv
import json
from dataclasses import replace
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from obygaze_features.annotations.agreement import find_pairs, pair_agreement
from obygaze_features.annotations.measures import Chance, distances_of, gamma
from obygaze_features.errors import UsageError
from obygaze_features.manifests import (
    Item,
    Items,
    LabelScheme,
    LabelSet,
    Level,
    Manifest,
    obygaze_scheme,
)

A = ["EN", "EN", "HN", "S", "EN", "NS", "EN", "S", "HN", "EN"]
B = ["EN", "HN", "HN", "NS", "EN", "S", "EN", "S", "EN", "EN"]
PAPER = distances_of(obygaze_scheme())
CODES = ["EN", "HN", "NS", "S"]
#: In tenths, as the paper prints it.
TENTHS = {"ENHN": 3, "ENNS": 7, "ENS": 10, "HNNS": 4, "HNS": 7, "NSS": 3}

levels = st.lists(st.tuples(st.sampled_from(CODES), st.sampled_from(CODES)), min_size=1)


def apart(a, b):
    """The mean distance, in exact numbers."""
    tenths = [TENTHS.get("".join(sorted(pair)), 0) for pair in zip(a, b, strict=True)]
    return Fraction(sum(tenths), 10 * len(tenths))


def make_manifest(films, seconds=60):
    """Films of clips of one length; a dot stands for a clip that an annotator lacks."""
    items, labels = [], {}
    for film, annotators in films.items():
        for number in range(max(map(len, annotators.values()))):
            start = number * seconds
            items.append(
                Item(f"{film}-{number:02}", film=film, media=film, start=start, end=start + seconds)
            )
        for name, given_levels in annotators.items():
            for number, level in enumerate(given_levels):
                if level != ".":
                    labels.setdefault(name, {})[f"{film}-{number:02}"] = level
    return Manifest("made", Items.of(items)).with_parts(
        labels=[
            LabelSet(name, list(of), list(of.values()), [()] * len(of))
            for name, of in labels.items()
        ]
    )


@pytest.mark.parametrize(
    ("generator", "expected", "value"),
    [("shuffled", 0.414, 0.710145), ("uniform", 0.425, 0.717647)],
)
def test_the_worked_case(generator, expected, value):
    result = gamma(A, B, PAPER, Chance(generator))
    assert result.clips == 10
    assert result.distance == pytest.approx(0.12, abs=1e-12)
    assert result.closed == pytest.approx(expected, abs=1e-12)
    assert result.closed_gamma == pytest.approx(value, abs=5e-7)
    assert result.gamma is not None
    assert result.expected is not None
    assert result.gamma == 1 - result.distance / result.expected
    assert abs(result.expected - expected) < 0.05
    assert result.p == 1 / 63


@pytest.mark.parametrize("generator", ["shuffled", "uniform"])
def test_random_sequences_converge_to_the_closed_form(generator):
    result = gamma(A, B, PAPER, Chance(generator, samples=40_000, seed=5))
    assert result.expected == pytest.approx(result.closed, abs=0.003)


@given(levels)
def test_the_mean_over_all_orders_is_the_closed_form(pairs):
    a, b = zip(*pairs[:5], strict=True)
    orders = [apart(a, order) for order in permutations(b)]
    assert gamma(a, b, PAPER).closed == pytest.approx(float(sum(orders) / len(orders)))


def test_p_is_the_share_of_orders_that_agree_as_well():
    a, b = ["EN", "EN", "HN", "NS", "S", "S"], ["EN", "HN", "NS", "NS", "EN", "S"]
    orders = [apart(a, order) for order in permutations(b)]
    exact = sum(entry <= apart(a, b) for entry in orders) / len(orders)
    assert 0.02 < exact < 0.5
    result = gamma(a, b, PAPER, Chance(samples=20_000, seed=1))
    assert result.p == pytest.approx(exact, abs=0.01)


@given(levels)
@settings(deadline=None)
def test_the_distance_is_exact_and_the_same_both_ways(pairs):
    a, b = zip(*pairs, strict=True)
    one, second = gamma(a, b, PAPER), gamma(b, a, PAPER)
    for result in (one, second):
        assert result.distance == pytest.approx(float(apart(a, b)), abs=1e-12)
    assert one.closed == pytest.approx(second.closed, abs=1e-12)


@given(levels, st.sampled_from(["shuffled", "uniform"]))
@settings(deadline=None)
def test_identical_annotators_have_gamma_1(pairs, generator):
    a = [level for level, _ in pairs]
    result = gamma(a, a, PAPER, Chance(generator))
    assert (result.distance, result.gamma, result.closed_gamma) == (0, 1, 1)


def test_what_is_not_defined_is_none():
    nothing = gamma([], [], PAPER)
    assert (nothing.clips, nothing.gamma, nothing.p) == (0, None, None)
    # Both orders of these two are tried by chance alone; a seed that meets the other one only:
    pairs = [gamma(["EN", "S"], ["S", "EN"], PAPER, Chance(samples=1, seed=s)) for s in range(20)]
    assert {pair.gamma for pair in pairs if pair.expected == 0} == {None}
    assert {pair.gamma for pair in pairs if pair.expected != 0} == {0}


def test_other_levels_have_even_distances():
    scheme = LabelScheme("tension", (Level("calm", "Calm"), Level("uneasy", "U"), Level("x", "X")))
    distances = distances_of(scheme)
    assert distances.name == "even"
    assert gamma(["calm", "x"], ["uneasy", "calm"], distances).distance == 0.75
    backwards = replace(obygaze_scheme(), levels=obygaze_scheme().levels[::-1])
    assert (distances_of(backwards).matrix == PAPER.matrix[::-1, ::-1]).all()


def test_gamma_without_not_sure_drops_clips_of_either():
    manifest = make_manifest({"f": {"ann": A, "bea": B}})
    [pair] = find_pairs(manifest)[0]
    result = pair_agreement(pair, PAPER)
    remaining = [(a, b) for a, b in zip(A, B, strict=True) if "NS" not in (a, b)]
    assert result.sure is not None
    assert result.sure.clips == len(remaining) == 8
    assert result.sure.distance == pytest.approx(float(apart(*zip(*remaining, strict=True))))
    a, b = zip(*remaining, strict=True)
    far = [float(apart([x], [y])) for x in a for y in b]
    assert result.sure.closed == pytest.approx(np.mean(far))
    uniform = pair_agreement(pair, PAPER, Chance("uniform", samples=2000)).sure
    assert uniform is not None
    others = [float(apart([x], [y])) for x in ("EN", "HN", "S") for y in ("EN", "HN", "S")]
    assert uniform.closed == pytest.approx(np.mean(others))
    assert uniform.expected == pytest.approx(uniform.closed, abs=0.02)


def test_a_pair_is_compared_on_the_clips_that_both_have():
    manifest = make_manifest({"f": {"ann": [*A, "S", "."], "bea": [*B, ".", "EN"]}})
    [pair], remarks = find_pairs(manifest)
    assert (pair.common, pair.unpaired, remarks) == ((A, B), 2, [])
    assert pair_agreement(pair, PAPER).gamma.clips == 10


def test_a_film_has_its_own_random_sequences():
    alone = make_manifest({"second": {"ann": A, "bea": B}})
    among = make_manifest(
        {"first": {"ann": A, "bea": B, "cy": A}, "second": {"bea": B, "ann": A, "cy": B}}
    )
    [pair] = find_pairs(alone)[0]
    result = {
        (pair.film, pair.a, pair.b): pair_agreement(pair, PAPER) for pair in find_pairs(among)[0]
    }
    assert len(result) == 6
    assert result["second", "ann", "bea"].to_json() == pair_agreement(pair, PAPER).to_json()
    first, second = (result[film, "ann", "bea"].gamma for film in ("first", "second"))
    assert (first.distance, first.closed) == (second.distance, second.closed)
    assert first.expected != second.expected


def test_one_label_set_is_no_pair():
    manifest = make_manifest({"f": {"ann": A}})
    with pytest.raises(UsageError, match=r"needs two label sets or more .got 1.*has ann"):
        find_pairs(manifest)


def test_projected_label_sets_come_before_all_others():
    manifest = make_manifest({"f": {"ann": A, "bea": B, "paper": A}})
    assert len(find_pairs(manifest)[0]) == 3
    projected = [
        replace(manifest.labels(name), about={"annotator": name}) for name in ("ann", "bea")
    ]
    [pair] = find_pairs(manifest.with_parts(labels=projected))[0]
    assert (pair.a, pair.b) == ("ann", "bea")
    assert len(find_pairs(manifest.with_parts(labels=projected), ["ann", "paper"])[0]) == 1


def saved(folder, films):
    manifest = make_manifest(films)
    merged = replace(manifest.labels("ann"), name="merged", about={"of": {"ann": {}, "bea": {}}})
    manifest.with_parts(labels=[merged]).save(folder)
    return folder


def test_the_command(tmp_path, obygaze):
    films = {"one": {"ann": A, "bea": B}, "two": {"ann": B, "bea": B}}
    folder = saved(tmp_path / "m", films)
    result = obygaze("annotations", "agreement", folder, "-o", tmp_path / "out")
    assert result.exit_code == 0, result.output
    for line in (
        "made: 2 pairs of label sets in 2 films; means: gamma 0.8",
        "ann and bea: the same level on 80% of 20 clips",
        "one scored against the other: F1 1.00 (EN+HN against S, 17 clips)",
        "gamma against 62 random sequences, shuffled, seed 0",
        "distances: the paper's matrix",
        "the paper's 23 pairs: gamma 0.42, without Not Sure 0.69",
        "where they differ, the longest first (4 stretches)",
    ):
        assert line in result.output
    with (tmp_path / "out/agreement.csv").open() as file:
        one, two = csv.DictReader(file)
    assert (one["film"], one["a"], one["b"], one["distance"]) == ("one", "ann", "bea", "0.12")
    assert (one["closed"], one["closed_gamma"]) == ("0.414", "0.710145")
    assert (two["distance"], two["gamma"], two["kappa"]) == ("0", "1", "1")
    with (tmp_path / "out/confusion.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["film"] == "one"]
    counts = {(row["level_a"], row["level_b"]): int(row["clips"]) for row in rows}
    assert len(counts) == len(rows) == 16
    assert counts == {(x, y): [*zip(A, B, strict=True)].count((x, y)) for x, y in counts}
    with (tmp_path / "out/differences.csv").open() as file:
        longest, *_ = csv.DictReader(file)
    assert (longest["first"], longest["start"], longest["end"]) == ("one-01", "60", "120")
    again = obygaze("annotations", "agreement", folder, "-o", tmp_path / "out")
    assert (again.exit_code, "--overwrite" in again.output) == (1, True)
    assert "and no limit" in obygaze("annotations", "agreement", "--help").output


def test_the_order_of_annotators_and_the_seed(tmp_path, obygaze):
    folder = saved(tmp_path / "m", {"one": {"ann": A, "bea": B}})

    def said(*options):
        result = obygaze("annotations", "agreement", folder, "--json", *options)
        assert result.exit_code == 0, result.output
        return result.stdout

    plain = said()
    assert said("--labels", "bea", "--labels", "ann") == plain
    assert said("--seed", 1) != plain
    outcome = json.loads(said("--generator", "uniform", "--samples", 500))
    assert (outcome["generator"], outcome["samples"], outcome["seed"]) == ("uniform", 500, 0)
    [pair] = outcome["pairs"]
    assert pair["gamma"]["closed_gamma"] == pytest.approx(0.717647, abs=5e-7)
    assert outcome["paper"]["pairs"] == 23
    with_merged = json.loads(said("--labels", "ann", "--labels", "merged"))
    assert with_merged["means"]["gamma"] == 1
    assert with_merged["differences"] == []


def test_films_without_a_second_annotator_are_named(tmp_path, obygaze):
    films = {"one": {"ann": A, "bea": B}, "two": {"ann": A}, "three": {"bea": A}}
    folder = saved(tmp_path / "m", films)
    result = obygaze("annotations", "agreement", folder)
    assert result.exit_code == 3
    assert "made: two ann: no second annotator (left out)" in result.output
    assert "made: three bea: no second annotator (left out)" in result.output
    outcome = json.loads(obygaze("annotations", "agreement", folder, "--json").stdout)
    assert [pair["film"] for pair in outcome["pairs"]] == ["one"]
    assert [issue["film"] for issue in outcome["remarks"]] == ["two", "three"]


def test_other_levels_are_not_compared_to_the_paper(tmp_path, obygaze):
    scheme = LabelScheme("mood", (Level("calm", "Calm"), Level("x", "X")))
    items = Items.of([Item(f"c{number}", film="f") for number in range(3)])
    sets = [
        LabelSet("ann", ["c0", "c1", "c2"], ["calm", "x", "x"], [()] * 3),
        LabelSet("bea", ["c0", "c1", "c2"], ["calm", "calm", "x"], [()] * 3),
    ]
    Manifest("mood", items, scheme=scheme).with_parts(labels=sets).save(tmp_path / "m")
    result = obygaze("annotations", "agreement", tmp_path / "m")
    assert result.exit_code == 0, result.output
    assert "even steps between levels" in result.output
    assert "paper" not in result.output
    assert "Not Sure" not in result.output
    outcome = json.loads(obygaze("annotations", "agreement", tmp_path / "m", "--json").stdout)
    assert (outcome["paper"], outcome["pairs"][0]["sure"]) == (None, None)


def test_thousands_are_separated(tmp_path, obygaze):
    many = {"f": {"ann": ["EN"] * 1200 + ["S"], "bea": ["S"] * 1200 + ["S"]}}
    make_manifest(many).save(tmp_path / "m")
    result = [
        line.split()
        for line in obygaze("annotations", "agreement", tmp_path / "m").output.splitlines()
    ]
    assert ["EN", "0", "0", "0", "1,200"] in result
    assert next(line[1] for line in result if line[:1] == ["f"]) == "1,201"
    assert any("1,200" in line for line in result if line[:4] == ["f", "EN", "/", "S"])


def test_annotators_without_a_clip_in_common_are_named():
    manifest = make_manifest({"f": {"ann": ["S", "."], "bea": [".", "S"]}})
    pairs, [remark] = find_pairs(manifest)
    assert (pairs, remark.film, remark.annotator) == ([], "f", "")
    assert remark.problem == "ann, bea have no clip in common"


def test_single_level_is_printed_as_a_dash(tmp_path, obygaze):
    folder = saved(tmp_path / "m", {"one": {"ann": ["NS"] * 3, "bea": ["NS"] * 3}})
    result = obygaze("annotations", "agreement", folder)
    assert result.exit_code == 0
    assert "no differences" in result.output
    [pair] = json.loads(obygaze("annotations", "agreement", folder, "--json").stdout)["pairs"]
    assert (pair["gamma"]["gamma"], pair["sure"]["gamma"], pair["kappa"]) == (1, None, None)
    assert pair["alpha_nominal"] is pair["alpha_ordinal"] is pair["alpha_distances"] is None


def with_concepts(manifest, concepts):
    """The manifest with concepts for its label sets."""
    labels = [replace(manifest.labels(name), concepts=of) for name, of in concepts.items()]
    return manifest.with_parts(labels=labels)


def test_concepts_and_who_marks_more_in_text_json_and_csv(tmp_path, obygaze):
    ann = [("Look",), ("Look", "Body"), ("Look",), (), (), ("Body",), (), (), (), ()]
    bea = [("Look",), ("Body",), (), (), (), ("Body",), (), (), (), ("Voice",)]
    manifest = make_manifest({"tt0467406": {"ann": [*A[:9], "S"], "bea": B}})
    with_concepts(manifest, {"ann": ann, "bea": bea}).save(tmp_path / "m")
    outcome = json.loads(obygaze("annotations", "agreement", tmp_path / "m", "--json").stdout)
    [overall] = outcome["overall"]
    expected = {
        name: cohen_kappa_score([name in c for c in ann], [name in c for c in bea])
        for name in ("Look", "Body", "Voice")
    }
    assert {c["concept"]: pytest.approx(c["kappa"]) for c in overall["concepts"]} == expected
    text = obygaze("annotations", "agreement", tmp_path / "m", "-o", tmp_path / "out").output
    lines = [line.split() for line in text.splitlines()]
    assert ["Look", "0.41", "3", "(30.0%)", "1", "(10.0%)"] in lines
    assert ["Voice", "only", "bea", "0", "(0.0%)", "1", "(10.0%)"] in lines
    assert text.index("ann and bea: the same level") < text.index("alpha")  # sentences first
    order = [line[0] for line in lines if line[:1] and line[0] in expected]
    assert order == ["Body", "Look", "Voice"]  # the best agreed on first
    assert "ann marks Sure 1.5 times as often as bea: 3 clips against 2 (both 1, either 4)" in text
    assert text.index("means: gamma") < text.index("by concept") < text.index("Juno (2007)")
    assert "tt0467406" not in text
    with (tmp_path / "out/concepts.csv").open() as file:
        rows = {row["concept"]: row for row in csv.DictReader(file)}
    assert float(rows["Look"]["kappa"]) == pytest.approx(expected["Look"], abs=1e-6)
    assert (rows["Look"]["a"], rows["Look"]["share_second"]) == ("ann", "0.1")


def test_p_is_not_printed_below_what_the_draws_can_show(tmp_path, obygaze):
    a = A * 4
    folder = saved(tmp_path / "m", {"one": {"ann": a, "bea": a}, "two": {"ann": a, "bea": a}})
    output = obygaze("annotations", "agreement", folder).output
    assert "no random sequence agrees as well in 2 of 2 rows: p is at most 1/63" in output
    assert "0.016" not in output
    # Where another film's p can be told, the column is there.
    films = {"one": {"ann": a, "bea": a}, "two": {"ann": ["EN", "S"] * 5, "bea": ["S", "EN"] * 5}}
    mixed = obygaze("annotations", "agreement", saved(tmp_path / "mixed", films)).output
    cells = [line.split() for line in mixed.splitlines()]
    assert next(line[-1] for line in cells if line[:2] == ["one", "40"]) == "≤1/63"
    assert float(next(line[-1] for line in cells if line[:2] == ["two", "10"])) > 1 / 63


@pytest.mark.parametrize("suffix", ["svg", "png", "pdf"])
def test_the_figure(tmp_path, obygaze, suffix):
    manifest = make_manifest({"tt0467406": {"ann": A, "bea": B}})
    concepts = [("Look",)] * 3 + [()] * 7
    with_concepts(manifest, {"ann": concepts, "bea": concepts[::-1]}).save(tmp_path / "m")
    path = tmp_path / f"agreement.{suffix}"
    result = obygaze("annotations", "agreement", tmp_path / "m", "-o", path, "-o", tmp_path / "all")
    assert result.exit_code == 0, result.output
    assert (tmp_path / "all/agreement.csv").is_file()
    if suffix == "svg":
        text = path.read_text()
        for word in ("Look", "Juno (2007)", "Cohen’s kappa", "How often each marks it"):
            assert word in text
        kappa = cohen_kappa_score([True] * 3 + [False] * 7, [False] * 7 + [True] * 3)
        assert f"Look: kappa {kappa:.2f}" in text
