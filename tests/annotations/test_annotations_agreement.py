"""Agreement: the paper's gamma, kappa and alpha, against definitions and other packages."""

import json
import math
import os
import pty
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from itertools import combinations, permutations
from pathlib import Path
from statistics import fmean

import krippendorff
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, cohen_kappa_score, confusion_matrix, f1_score

import obygaze_features as of
from obygaze_features.annotations.agreement import (
    Disagreement,
    compare_label_sets,
    find_disagreements,
    find_pairs,
    pair_agreement,
    sure_task,
)
from obygaze_features.annotations.measures import (
    MEASURES,
    Chance,
    Measure,
    Ratings,
    cohen_kappa,
    confusion,
    distances_of,
    gamma,
    krippendorff_alpha,
    nominal,
    ordinal,
)
from obygaze_features.annotations.timelines import Segment
from obygaze_features.errors import UsageError
from obygaze_features.manifests import Item, Items, LabelScheme, LabelSet, Level
from tests.kit.authors import SIX_CLIPS, clip_table
from tests.kit.files import csv_rows, refused, write
from tests.kit.floats import close

A = ["EN", "EN", "HN", "S", "EN", "NS", "EN", "S", "HN", "EN"]
B = ["EN", "HN", "HN", "NS", "EN", "S", "EN", "S", "EN", "EN"]
PAPER = distances_of(of.obygaze_scheme())
CODES = ["EN", "HN", "NS", "S"]
#: In tenths, as the paper prints it.
TENTHS = {"ENHN": 3, "ENNS": 7, "ENS": 10, "HNNS": 4, "HNS": 7, "NSS": 3}
levels = st.lists(st.tuples(st.sampled_from(CODES), st.sampled_from(CODES)), min_size=1)


def apart(a, b):
    tenths = [TENTHS.get("".join(sorted(pair)), 0) for pair in zip(a, b, strict=True)]
    return Fraction(sum(tenths), 10 * len(tenths))


OWN = {"origin": "annotator"}


def make_manifest(films, seconds=60.0, spans=None):
    """Return a manifest with equal clips, or with `spans`; a dot is an unlabelled clip."""
    items, labels = [], {}
    for film, annotators in films.items():
        for number in range(max(map(len, annotators.values()))):
            start, end = spans[number] if spans else (number * seconds, (number + 1) * seconds)
            items.append(Item(f"{film}-{number:02}", film=film, media=film, start=start, end=end))
        for name, given_levels in annotators.items():
            for number, level in enumerate(given_levels):
                if level != ".":
                    labels.setdefault(name, {})[f"{film}-{number:02}"] = level
    sets = [
        LabelSet(name, list(level_of), list(level_of.values()), [()] * len(level_of), about=OWN)
        for name, level_of in labels.items()
    ]
    return of.Manifest("made", Items.of(items)).with_parts(labels=sets)


@given(levels, st.sampled_from(["shuffled", "uniform"]))
def test_gamma_equals_the_exact_definition(pairs, generator):
    a, b = zip(*pairs, strict=True)
    first, second = gamma(a, b, PAPER), gamma(b, a, PAPER)
    assert first.distance == pytest.approx(float(apart(a, b)), abs=1e-12)
    assert (second.distance, second.closed) == close((first.distance, first.closed))
    same = gamma(a, a, PAPER, Chance(generator))
    assert (same.distance, same.gamma, same.closed_gamma) == (0, 1, 1)
    # The mean over all orders is the closed form.
    orders = [apart(a[:5], order) for order in permutations(b[:5])]
    assert gamma(a[:5], b[:5], PAPER).closed == close(float(sum(orders) / len(orders)))


def test_p_is_the_share_of_orders_that_agree_as_well():
    a, b = ["EN", "EN", "HN", "NS", "S", "S"], ["EN", "HN", "NS", "NS", "EN", "S"]
    orders = [apart(a, order) for order in permutations(b)]
    exact = sum(entry <= apart(a, b) for entry in orders) / len(orders)
    assert 0.02 < exact < 0.5
    result = gamma(a, b, PAPER, Chance(samples=20_000, seed=1))
    assert result.p == pytest.approx(exact, abs=0.01)
    assert gamma(A, B, PAPER).p == 1 / 63


def test_gamma_is_none_where_undefined():
    nothing = gamma([], [], PAPER)
    assert (nothing.clips, nothing.gamma, nothing.p) == (0, None, None)
    empty = confusion([], [], CODES)
    assert cohen_kappa(empty) is krippendorff_alpha(empty, PAPER.matrix) is None
    # Both orders of these two are tried by chance alone; a seed that meets the other one only:
    pairs = [gamma(["EN", "S"], ["S", "EN"], PAPER, Chance(samples=1, seed=s)) for s in range(20)]
    assert {pair.gamma for pair in pairs if pair.expected == 0} == {None}
    assert {pair.gamma for pair in pairs if pair.expected != 0} == {0}
    scheme = LabelScheme("tension", (Level("calm", "Calm"), Level("uneasy", "U"), Level("x", "X")))
    distances = distances_of(scheme)
    assert distances.name == "even"
    assert gamma(["calm", "x"], ["uneasy", "calm"], distances).distance == 0.75
    backwards = replace(of.obygaze_scheme(), levels=of.obygaze_scheme().levels[::-1])
    assert (distances_of(backwards).matrix == PAPER.matrix[::-1, ::-1]).all()


def test_pairs_are_compared_on_their_common_clips():
    manifest = make_manifest({"f": {"ann": [*A, "S", "."], "bea": [*B, ".", "EN"]}})
    [pair], remarks = find_pairs(manifest)
    assert (pair.common, pair.unpaired, remarks) == ((A, B), 2, [])
    assert pair_agreement(pair, PAPER).ratings.gamma.clips == 10
    uniform = pair_agreement(pair, PAPER, Chance("uniform")).ratings.sure
    assert uniform.clips == 8  # without Not Sure from either annotator: over the other levels
    others = [float(apart([x], [y])) for x in ("EN", "HN", "S") for y in ("EN", "HN", "S")]
    assert uniform.closed == close(np.mean(others))
    pairs, [remark] = find_pairs(make_manifest({"f": {"ann": ["S", "."], "bea": [".", "S"]}}))
    assert (pairs, remark.film, remark.what) == ([], "f", "ann, bea have no clip in common")
    with pytest.raises(UsageError, match=r"made: .*two annotators.*by an annotator .ann.$"):
        find_pairs(make_manifest({"f": {"ann": A}}))


def test_each_film_has_its_own_random_sequences():
    films = {"first": {"ann": A, "bea": B, "cy": A}, "second": {"bea": B, "ann": A, "cy": B}}
    [pair] = find_pairs(make_manifest({"second": {"ann": A, "bea": B}}))[0]
    pairs = find_pairs(make_manifest(films))[0]
    result = {(p.film, p.a, p.b): pair_agreement(p, PAPER) for p in pairs}
    assert len(result) == 6
    assert result["second", "ann", "bea"].to_json() == pair_agreement(pair, PAPER).to_json()
    first, second = (result[film, "ann", "bea"].ratings.gamma for film in films)
    assert (first.distance, first.closed) == (second.distance, second.closed)
    assert first.expected != second.expected


def disagreements(pairs, spans=None):
    ann, bea = zip(*pairs, strict=True)
    manifest = make_manifest({"c": {"ann": ann, "bea": bea}}, spans=spans)
    return find_disagreements(find_pairs(manifest)[0], manifest.items, PAPER)


def test_differing_stretches_have_levels_times_and_distance():
    labels = [("EN", "EN"), ("EN", "S"), ("HN", "S"), ("S", "S"), ("EN", "HN"), ("NS", "HN")]
    spans = [(0, 10), (10, 20), (20, 25), (25, 40), (40, 41), (41, 50)]
    first, second = disagreements(labels, spans)
    assert first == Disagreement(
        film="c", a="ann", b="bea", first="c-01", last="c-02", clips=2, seconds=15, start=10,
        end=25, levels_a=("EN", "HN"), levels_b=("S",), distance=close(0.85),
    )  # fmt: skip
    assert (second.first, second.last, second.seconds) == ("c-04", "c-05", 10)
    assert second.distance == close(0.35)
    # Clips are ordered by time; the longest stretch is first.
    labels = [("EN", "HN"), ("EN", "HN"), ("S", "S"), ("EN", "HN"), ("S", "S"), ("EN", "S")]
    spans = [(1, 2), (0, 1), (2, 3), (3, 50), (50, 51), (51, 53)]
    assert [run.first for run in disagreements(labels, spans)] == ["c-03", "c-01", "c-05"]
    # A shot inside a longer clip does not end a stretch; only an uncovered gap does.
    spans = [(0, 100), (10, 20), (30, 40), (100, 110), (111, 120)]
    runs = disagreements([("EN", "S")] * 5, spans)
    assert sorted((run.first, run.clips, run.end) for run in runs) == [
        ("c-00", 4, 110), ("c-04", 1, 120),
    ]  # fmt: skip


LEVEL = st.sampled_from([*CODES, "."])


@given(st.lists(st.tuples(LEVEL, LEVEL), min_size=1, max_size=12))
def test_disagreements_equal_a_search_over_all_stretches(labels):
    if not any("." not in pair for pair in labels):
        return

    def differs(row):
        return 0 <= row < len(labels) and "." not in labels[row] and len(set(labels[row])) == 2

    runs = {
        (start, end - 1)
        for start, end in combinations(range(len(labels) + 1), 2)
        if all(map(differs, range(start, end))) and not differs(start - 1) and not differs(end)
    }
    result = disagreements(labels, [(None, None)] * len(labels))
    assert {entry.start for entry in result} <= {None}
    assert {(int(entry.first[2:]), int(entry.last[2:])) for entry in result} == runs
    clips = [entry.clips for entry in result]
    assert clips == sorted(clips, reverse=True)


@pytest.fixture
def agreement(obygaze, tmp_path):
    """Run the command on labels of films, and return its output, or its JSON content."""

    def agreement(films, *options, code=0, concepts=None):
        manifest = make_manifest(films)
        about = {"of": {"ann": {}, "bea": {}}}
        merged = replace(manifest.labels("ann"), name="merged", about=about)
        labels = [replace(manifest.labels(n), concepts=c) for n, c in (concepts or {}).items()]
        manifest.with_parts(labels=[merged, *labels]).save(tmp_path / "m", overwrite=True)
        result = obygaze("annotations", "agreement", tmp_path / "m", *options, code=code)
        return json.loads(result.stdout) if "--json" in options else result.output

    return agreement


def test_agreement_prints_and_writes_its_tables(agreement, tmp_path):
    films, out = {"one": {"ann": A, "bea": B}, "two": {"ann": B, "bea": B}}, tmp_path / "out"
    printed = agreement(films, "-o", out)
    text = " ".join(printed.split())
    equal = accuracy_score(A + B, B + B)
    assert text.startswith(f"made: ann and bea give the same level to {equal:.0%} of 20 clips. ")
    assert "On average over films: gamma 0.8" in text
    kappas = cohen_kappa_score(A, B), cohen_kappa_score(A + B, B + B)  # of the other film: 1
    by_name = {row["measure"]: float(row["value"]) for row in csv_rows(out / "means.csv")}
    assert by_name["kappa, mean over films"] == pytest.approx((kappas[0] + 1) / 2, abs=1e-6)
    assert by_name["kappa, all films together (ann, bea)"] == pytest.approx(kappas[1], abs=1e-6)
    assert f", kappa {(kappas[0] + 1) / 2:.3f}. " in text
    assert f"Kappa over all films is {kappas[1]:.3f}: 0 is chance" in text
    assert max(map(len, printed.partition("film  ")[0].splitlines())) <= 80
    assert "gamma 0.42 for its 23 pairs, and 0.69 without Not Sure" in text
    row, identical = csv_rows(out / "agreement.csv")
    assert (row["film"], row["a"], row["b"], row["distance"]) == ("one", "ann", "bea", "0.12")
    assert (row["closed"], row["closed_gamma"]) == ("0.414", "0.710145")
    assert (identical["distance"], identical["gamma"], identical["kappa"]) == ("0", "1", "1")
    rows = [row for row in csv_rows(out / "confusion.csv") if row["film"] == "one"]
    counts = {(row["level_a"], row["level_b"]): int(row["clips"]) for row in rows}
    assert len(counts) == len(rows) == 16
    assert counts == {(x, y): [*zip(A, B, strict=True)].count((x, y)) for x, y in counts}
    longest, *_ = csv_rows(out / "differences.csv")
    assert (longest["first"], longest["start"], longest["end"]) == ("one-01", "60", "120")
    assert "--overwrite" in agreement(films, "-o", out, code=1)
    assert "Where they differ" in printed
    same = agreement({"f": {"ann": ["NS"] * 1201, "bea": ["NS"] * 1201}})
    assert "There are no differences." in same
    assert ["NS", "0", "0", "1,201", "0"] in [line.split() for line in same.splitlines()]


@pytest.fixture
def share_of_equal_levels():
    """A measure added by this test, as a user of `measures.py` would add one."""

    @Measure("equal", "same level", "the share of clips with one level", "equal {}")
    def compute(ratings: Ratings) -> float:
        return fmean(x == y for x, y in zip(ratings.a, ratings.b, strict=True))

    yield
    del MEASURES["equal"]


@pytest.mark.usefixtures("share_of_equal_levels")
def test_adding_a_measure_takes_one_function(agreement, tmp_path):
    films = {"one": {"ann": A, "bea": B}, "two": {"ann": B, "bea": B}}
    text, share = agreement(films, "-o", tmp_path / "out"), accuracy_score(A, B)
    assert f", equal {(share + 1) / 2:.3f}.\n" in text
    [header] = [line.split("  ") for line in text.splitlines() if line.startswith("film  clips")][
        :1
    ]
    assert header[-1] == "same level"
    [row] = [line.split() for line in text.splitlines() if line.startswith("one      10")]
    assert row[-1] == f"{share:.3f}"
    report = agreement(films, "--json")
    assert [pair["equal"] for pair in report["pairs"]] == [close(share), 1]
    assert report["means"]["equal"] == close((share + 1) / 2)
    rows = csv_rows(tmp_path / "out/agreement.csv")
    assert [float(row["equal"]) for row in rows] == [close(share), 1]
    means = {row["measure"]: float(row["value"]) for row in csv_rows(tmp_path / "out/means.csv")}
    assert means["equal, mean over films"] == close((share + 1) / 2)


def test_results_do_not_depend_on_the_order_of_annotators(agreement):
    films = {"one": {"ann": A, "bea": B}}
    plain = agreement(films, "--json")
    assert agreement(films, "--json", "--labels", "bea", "--labels", "ann") == plain
    merged = agreement(films, "--json", "--labels", "ann", "--labels", "merged")
    assert (merged["means"]["gamma"], merged["differences"]) == (1, [])
    [remark] = merged["remarks"]
    assert (remark["annotator"], remark["code"]) == ("merged", "merge-of-compared")
    text = agreement(films, "--labels", "ann", "--labels", "merged")
    assert "merged: was merged from ann, so it agrees" in text
    assert agreement(films, "--json", "--labels", "ann", "--labels", "bea")["remarks"] == []
    text = agreement(films | {"two": {"ann": A}}, code=3)
    assert "made: ann and bea give the same level to" in text
    assert "made: two ann: no second annotator (left out)" in text


def test_one_label_set_needs_a_second(agreement, obygaze, tmp_path):
    films = {"one": {"ann": A, "bea": B}}
    output = agreement(films, "--labels", "ann", "--labels", "ann", code=2)
    assert "only 'ann' was named" in output
    assert "annotator's label set: --labels ann --labels bea" in " ".join(output.split())
    make_manifest(films | {"two": {"ann": A, "cleo": B}}).save(tmp_path / "three")
    result = obygaze("annotations", "agreement", tmp_path / "three", "--labels", "cleo")
    refused(result, "(ann, bea)", "--labels cleo --labels ann", code=2)
    make_manifest({"one": {"ann": A}}).save(tmp_path / "alone")
    result = obygaze("annotations", "agreement", tmp_path / "alone", "--labels", "ann")
    refused(result, "no labels from another annotator", code=2)


def test_a_small_difference_is_not_called_one_times_as_often(agreement):
    marks = {"ann": ["S"] * 22 + ["EN"] * 8, "bea": ["EN"] * 9 + ["S"] * 21}
    text = " ".join(agreement({"tt0467406": marks}).split())
    assert "ann marks Sure slightly more often than bea: 22 clips against 21." in text


def test_concepts_are_in_text_json_and_tables(agreement, tmp_path):
    ann = [("Look",), ("Look", "Body"), ("Look",), (), (), ("Body",), (), (), (), ()]
    bea = [("Look",), ("Body",), (), (), (), ("Body",), (), (), (), ("Voice",)]
    films, concepts = {"tt0467406": {"ann": [*A[:9], "S"], "bea": B}}, {"ann": ann, "bea": bea}
    [overall] = agreement(films, "--json", concepts=concepts)["overall"]
    kappas = {
        name: cohen_kappa_score([name in c for c in ann], [name in c for c in bea])
        for name in ("Look", "Body", "Voice")
    }
    assert {c["concept"]: close(c["kappa"]) for c in overall["concepts"]} == kappas
    text = agreement(films, "-o", tmp_path / "out", concepts=concepts)
    lines = [line.split() for line in text.splitlines()]
    assert ["Look", "0.41", "3", "(30.0%)", "1", "(10.0%)"] in lines
    assert ["Voice", "only", "bea", "0", "(0.0%)", "1", "(10.0%)"] in lines
    order = [line[0] for line in lines if line[:1] and line[0] in kappas]
    assert order == ["Body", "Look", "Voice"]  # the best agreed on first
    more = "ann marks Sure 1.5 times as often as bea: 3 clips against 2. "
    assert f"{more}At least one of them marks 4, and both mark 1." in " ".join(text.split())
    assert text.index("films: gamma") < text.index("Concepts:") < text.index("Juno (2007)")
    [row] = [row for row in csv_rows(tmp_path / "out/concepts.csv") if row["concept"] == "Look"]
    assert float(row["kappa"]) == pytest.approx(kappas["Look"], abs=1e-6)
    assert (row["a"], row["share_second"]) == ("ann", "0.1")
    rows = csv_rows(tmp_path / "out/concepts_by_film.csv")
    assert [(r["film"], r["concept"]) for r in rows] == [("tt0467406", name) for name in kappas]
    for name in ("agreement", "concepts_by_film", "confusion", "differences"):
        rows = csv_rows(tmp_path / f"out/{name}.csv")
        assert {(row["film"], row["title"]) for row in rows} == {("tt0467406", "Juno (2007)")}


CONCEPTS = ["Look", "Body", "Speech"]
LABEL = st.tuples(st.sampled_from(CODES), st.sets(st.sampled_from(CONCEPTS)))
TASKS = [(["S"], ["EN", "HN"]), (["NS", "S"], ["EN"]), (["S"], ["EN", "HN", "NS"])]


@given(st.lists(st.tuples(LABEL, LABEL), min_size=1, max_size=30), st.sampled_from(TASKS))
def test_label_sets_are_compared_as_by_scikit_learn(pairs, task):
    """Each annotator has one more clip, and their clips are in different orders."""
    ids, (ann, bea) = [f"c{n}" for n in range(len(pairs))], zip(*pairs, strict=True)
    sets = [
        LabelSet(name, order, [level for level, _ in marks], [tuple(c) for _, c in marks])
        for name, order, marks in (
            ("ann", ["z", *ids], [("S", {"Voice"}), *ann]),
            ("bea", ["y", *ids[::-1]], [("S", {"Voice"}), *bea[::-1]]),
        )
    ]
    items = Items.of([Item(name, film=f"f{name[-1] in '02468'}") for name in ["z", *ids, "y"]])
    result = compare_label_sets(of.Manifest("m", items).with_parts(labels=sets), "ann", "bea")
    a, b = ([level for level, _ in side] for side in (ann, bea))
    assert (result.clips, result.equal_levels) == (len(ids), close(accuracy_score(a, b)))
    counts = [[result.confusion.get((x, y), 0) for y in CODES] for x in CODES]
    assert counts == confusion_matrix(a, b, labels=CODES).tolist()
    assert result.counts("S") == (a.count("S"), b.count("S"), counts[3][3])
    positives, negatives = task
    of_task = [[level in positives for level in pair] for pair in zip(a, b, strict=True)
               if {*pair} <= {*positives, *negatives}]  # fmt: skip
    f1 = f1_score(*zip(*of_task, strict=True)) if any(map(any, of_task)) else math.nan
    assert result.f1(positives, negatives) == close(f1)
    by_film = {film: [n for n in range(len(ids)) if film == f"f{n % 2 == 0}"]
               for film in ("fTrue", "fFalse")}  # fmt: skip
    for film, rows in {"": range(len(ids)), **by_film}.items():
        concepts = result.by_film_and_concept.get(film, ()) if film else result.concepts
        for concept in concepts:
            marks = [[concept.concept in side[row][1] for row in rows] for side in (ann, bea)]
            shares = concept.share_first, concept.share_second
            assert shares == close(list(map(fmean, marks)))
            kappa = None if all(map(all, marks)) else close(cohen_kappa_score(*marks))
            assert concept.kappa == kappa
        marked = {name for row in rows for _, names in pairs[row] for name in names}
        assert [c.concept for c in concepts] == [name for name in CONCEPTS if name in marked]


def test_label_sets_without_common_clips_have_no_agreement():
    items = Items.of([Item("a"), Item("b")])
    x, y = (LabelSet(name, [i], ["S"], [()]) for name, i in (("x", "a"), ("y", "b")))
    result = compare_label_sets(of.Manifest("m", items).with_parts(labels=[x, y]), "x", "y")
    assert (result.clips, result.concepts, result.to_json()["equal_levels"]) == (0, (), None)
    scheme = LabelScheme("mood", (Level("calm", "Calm"), Level("NS", "Not sure"), Level("x", "X")))
    assert sure_task(scheme) == (("x",), ("calm",))


#: The JSON of label sets, their origin, and whether that is an annotator.
MADE = {
    "said": ({"origin": "annotator"}, "annotator", True),
    "ruled": ({"origin": "rule", "annotator": "by mistake"}, "rule", False),
    # As earlier versions wrote them.
    "projected": ({"annotator": "Ann", "rule": "a segment counts"}, "annotator", True),
    "copied": ({"rule": "as in clips.csv"}, "", False),
    "bare": ({}, "", False),
    "vouched": ({"rule": "as in theirs.csv"}, "", True),
    "derived": ({"rule": "visual concepts only"}, "rule", False),
    "both": ({"rule": "the highest", "of": {"projected": {}, "derived": {"rule": "v"}}},
             "merge", False),
    "more": ({"of": {"both": {"of": {"vouched": {}}}, "ruled": {"origin": "rule"}}},
             "merge", False),
}  # fmt: skip


def test_the_annotator_of_a_label_set_is_read_from_its_json(tmp_path, obygaze):
    folder = tmp_path / "m"
    of.Manifest("m", Items.of([Item("a", film="f")])).save(folder)
    for name, (about, _, _) in MADE.items():
        write(folder / f"labels/{name}.csv", "id,level", "a,S")
        write(folder / f"labels/{name}.json", json.dumps(about))
    manifest = of.Manifest.load(folder)
    origins = {name: manifest.labels(name).origin for name in MADE}
    assert origins == {name: origin for name, (_, origin, _) in MADE.items()}
    assert manifest.annotators == sorted(name for name, (*_, is_one) in MADE.items() if is_one)
    assert manifest.labels("more").merged_annotators == ["vouched"]
    write(folder / "labels/bare.json", '{"origin": "anotator"}')
    result = obygaze("manifests", "check", folder, code=1)
    assert "bare.json: unknown origin 'anotator'; did you mean annotator?" in result.stdout


def test_rules_are_not_compared_as_annotators(tmp_path, obygaze):
    source, folder = tmp_path / "clips.csv", tmp_path / "m"
    source.write_bytes(clip_table(*SIX_CLIPS))
    obygaze("manifests", "import", "obygaze12", source, "-o", folder, code=0)
    rules = [word for name in ("paper", "raw") for word in ("--labels", name)]

    def refuse():
        result = obygaze("annotations", "agreement", folder)
        refused(result, "two annotators", "by a rule (paper, raw, released)", code=2)
        refused(obygaze("annotations", "agreement", folder, *rules), "by a rule", code=2)
        refused(obygaze("annotations", "merge", folder), "at least two annotators", code=2)

    assert of.Manifest.load(folder).labels("raw").origin == "rule"
    refuse()
    obygaze("annotations", "merge", folder, *rules, code=0)
    assert of.Manifest.load(folder).labels("merged").merged_annotators == []
    for path in (folder / "labels").glob("merged.*"):
        path.unlink()
    for path in (folder / "labels").glob("*.json"):  # as earlier versions wrote it
        about = json.loads(path.read_text())
        path.write_text(json.dumps({"rule": about["rule"]}))
    refuse()


def test_tables_with_a_named_annotator_are_compared(tmp_path, obygaze):
    folder, rows = tmp_path / "m", ["a,f,S", "b,f,EN", "c,f,S", "d,f,EN"]
    first = write(tmp_path / "first.csv", "id,film,level", *rows)
    second = write(tmp_path / "second.csv", "id,level", "a,S", "b,S", "c,S", "d,EN")
    third = write(tmp_path / "third.csv", "id,level", "a,EN", "b,EN", "c,S", "d,EN")
    label, agree = ("manifests", "label", folder), ("annotations", "agreement", folder)
    obygaze("manifests", "import", "csv", first, "-o", folder, "--annotator", "Ann B.", code=0)
    obygaze(*label, second, "--annotator", "ben", code=0)
    obygaze(*label, third, code=0)
    assert of.Manifest.load(folder).annotators == ["Ann_B", "ben"]
    [pair] = json.loads(obygaze(*agree, "--json", code=0).stdout)["overall"]
    assert (pair["a"], pair["b"], pair["equal_levels"]) == ("Ann_B", "ben", 0.75)
    obygaze("annotations", "merge", folder, code=0)
    assert of.Manifest.load(folder).labels("merged").merged_from == ["Ann_B", "ben"]
    # The third label set has no origin; naming it makes it an annotator's.
    of_two = ("--labels", "ben", "--labels", "third")
    [pair] = json.loads(obygaze(*agree, *of_two, "--json", code=0).stdout)["overall"]
    assert (pair["a"], pair["b"], pair["equal_levels"]) == ("ben", "third", 0.5)
    (folder / "labels/Ann_B.csv").unlink()
    (folder / "labels/merged.csv").unlink()
    facts = "two annotators", "by an annotator (ben)", "(third)", "--labels A --labels B"
    refused(obygaze(*agree), *facts, code=2)


@given(levels)
def test_alpha_equals_the_krippendorff_package(labels):
    a, b = zip(*labels, strict=True)
    counts = confusion(a, b, CODES)
    ranks = np.array([[CODES.index(level) for level in entry] for entry in (a, b)], dtype=float)
    for level, differences in (
        ("nominal", nominal(counts)),
        ("ordinal", ordinal(counts)),
        (lambda v1, v2, i1, i2, **_: PAPER.matrix[i1, i2], PAPER.matrix),
    ):
        result = krippendorff_alpha(counts, differences)
        if len({*a, *b}) == 1:
            assert result is None
            continue
        expected = krippendorff.alpha(
            reliability_data=ranks, level_of_measurement=level, value_domain=[0.0, 1.0, 2.0, 3.0]
        )
        assert result == pytest.approx(expected, abs=1e-9)


def test_one_number_is_bold_on_terminals(tmp_path, obygaze):
    rows = [Segment("f", f"annotator{n}", 0, 20.0 * n, "S", ("Look",)) for n in (1, 2)]
    of.Timelines.of("t", rows).save(tmp_path / "t")
    obygaze("annotations", "project", tmp_path / "t", "--grid", 10, "-o", tmp_path / "m")
    words = ("agreement", tmp_path / "m")
    piped = obygaze("annotations", *words).stdout
    coloured, plain = (on_terminal(words, env) for env in ({}, {"NO_COLOR": "1"}))
    assert ["\x1b[1m" in text for text in (coloured, plain, piped)] == [True, False, False]
    assert "the same level to \x1b[1m50%\x1b[0m of 4 clips" in coloured  # the first 20 of 40 s


def on_terminal(words, environment):
    main, terminal = pty.openpty()
    command = [Path(sys.executable).with_name("obygaze"), "annotations", *words]
    environment = {**os.environ, "COLUMNS": "80", **environment}
    subprocess.run(command, stdout=terminal, env=environment, check=True)
    os.set_blocking(main, False)
    return os.read(main, 1 << 16).decode()
