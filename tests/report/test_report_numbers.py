"""The scores, counts and figures of the page, computed again from the run folders."""

import json
import re

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score, f1_score

from obygaze_features.common.package import reference_json
from obygaze_features.manifests import Manifest
from obygaze_models.report.page import render_report
from tests.report.conftest import as_obygaze12, with_annotators
from tests.report.oracle import Folder, Numbers, Oracle


def checked(runs, manifests=()):
    html = render_report(runs)
    numbers = Numbers(html)
    oracle = Oracle([one.run.folder for one in runs], list(manifests))
    wrong = [
        (key, value, oracle(key))
        for key, value, _ in numbers.found
        if value != pytest.approx(oracle(key), abs=1e-6)
    ]
    assert wrong == []
    for key, value, said in numbers.found:
        if said.endswith("%"):
            assert said == f"{value:.0%}"
        elif said:
            digits = len(said.partition(".")[2])
            shown_value = float(said.replace("−", "-").replace(",", ""))
            assert shown_value == pytest.approx(value, abs=0.51 * 10**-digits), key
    return numbers, html


@pytest.mark.gate
def test_all_numbers_of_many_runs(results):
    numbers, html = checked([as_obygaze12(one) for one in results.values()])
    kinds = {key.split("/")[0] for key, _, _ in numbers.found}
    assert kinds >= {"score", "guess", "test", "published", "difference", "film", "concept"}
    # Nothing that looks like a score stands in a table without a key.
    for table in re.findall(r"<table.*?</table>", html, re.S):
        bare = re.sub(r"<data .*?</data>", "", table)
        assert not re.findall(r">\s*[+−]?\d*\.\d+", bare)


@pytest.mark.parametrize("name", ["first", "films"])
def test_all_numbers_of_one_run(results, name):
    numbers, _ = checked([results[name]])
    assert len(numbers.found) > 20


def test_all_numbers_beside_two_annotators(results, tmp_path):
    run = with_annotators(results["films"], tmp_path / "manifest")
    numbers, html = checked([run], [tmp_path / "manifest"])
    kinds = {key.split("/")[0] for key, _, _ in numbers.found}
    assert {"human", "agreement", "annotated", "errors", "film"} <= kinds
    assert "may not be concluded" in html
    oracle = Oracle([run.run.folder], [tmp_path / "manifest"])
    shown = tips(html, "annotator against annotator")
    assert float(shown["annotator against annotator"]) == pytest.approx(
        oracle.human("0", next(iter(run.run.record.tests))), abs=0.0051
    )
    first, second = (
        Manifest.load(tmp_path / "manifest").labels(name) for name in ("annotator1", "annotator2")
    )
    for concept in ("Look", "Body"):
        marks = [[concept in names for names in of.concepts] for of in (first, second)]
        kappa = float(tips(html, "Look, kappa")[f"{concept}, kappa"].replace("−", "-"))
        assert kappa == pytest.approx(cohen_kappa_score(*marks), abs=0.0051)


def tips(html, mark):
    """Mark -> number, by the tooltips of the first figure with that mark."""
    figures = (part.partition("</svg>")[0] for part in html.split("<svg")[1:])
    svg = next(part for part in figures if f"<g><title>{mark}" in part)
    return dict(text.rsplit(": ", 1) for text in re.findall(r"<g><title>([^<]*)</title>", svg))


def test_the_figures_show_the_runs_numbers(results):
    run = results["films"]
    html, oracle = render_report([run]), Oracle([run.run.folder])
    marked = tips(html, "Look, Hard Negative")
    assert marked["Look, Sure"] == f"{oracle.marked(0, 'Look', 'S'):.0%}"
    best = max(run.run.record.scores, key=lambda entry: entry.mean["f1"])
    scores = tips(html, f"{best.model}, model")
    assert scores[f"{best.model}, model"].startswith(f"{best.mean['f1']:.2f} (")
    errors = tips(html, "Look, interval ") | tips(html, "Body, interval ")
    for factor in ("Look", "Body"):
        (shown,) = (text for name, text in errors.items() if name.startswith(f"{factor}, interval"))
        assert float(shown.split(" (")[0].replace("−", "-")) == pytest.approx(
            oracle.errors(0, best.model, "all", factor), abs=0.0051
        )


def test_the_concepts_figures_have_one_order_and_whole_names(results, tmp_path):
    """By the share of Sure clips that have the concept, less that of the lowest level."""
    run = with_annotators(results["films"], tmp_path / "manifest")
    html, oracle = render_report([run]), Oracle([run.run.folder])
    marked = {
        name: oracle.marked(0, name, "S") - oracle.marked(0, name, "HN")
        for name in ("Look", "Body", "Posture")
    }
    order = sorted(marked, key=marked.get, reverse=True)
    section = html.partition('id="concepts"')[2].partition("</section>")[0]
    figures = re.findall(r"<svg.*?</svg>", section, re.S)
    assert len(figures) == 4
    for svg in figures:
        rows = [text for text in re.findall(r"<text[^>]*>([^<]*)</text>", svg) if text in marked]
        assert rows == order
    rows = re.findall(r"<text[^>]*>([^<]* clips)</text>", figures[-1])
    assert rows == ["Easy Negative clips", "Hard Negative clips", "Sure clips"]


def test_gamma_of_each_film_is_drawn(results, tmp_path):
    run = with_annotators(results["films"], tmp_path / "manifest")
    shown = tips(render_report([run]), "tt0: ")
    manifest = Manifest.load(tmp_path / "manifest")
    first, second = (manifest.labels(f"annotator{number}").level_of for number in (1, 2))
    for film in ("tt0", "tt1", "tt2", "tt3"):
        pairs = [(first[clip], second[clip]) for clip in first if clip.startswith(film)]
        observed = np.mean([reference_distance(a, b) for a, b in pairs])
        expected = np.mean([reference_distance(a, b) for a, _ in pairs for _, b in pairs])
        assert float(shown[film]) == pytest.approx(1 - observed / expected, abs=0.05)


def reference_distance(a, b):
    paper = reference_json("scheme-obygaze.json")["distances"]
    return paper["matrix"][paper["levels"].index(a)][paper["levels"].index(b)]


def test_the_strips_show_levels_and_where_the_model_differs(results, tmp_path):
    """Each lane of a film, clip by clip, from the paths that are drawn."""
    run = results["films"]
    html = render_report([run])
    data = explorer(html)
    best = max(run.run.record.scores, key=lambda entry: entry.mean["f1"]).model
    view, clips = next(v for v in data["views"] if v["model"] == best), data["clips"][0]
    strips = re.search(r'<table class="strips".*?</table>', html, re.S)[0]
    links = re.findall(r'href="#film=(.*?)"', strips)
    assert sorted(links) == sorted(film["id"] for film in clips["films"])
    row = {at: place for place, at in enumerate(view["at"])}
    colours = {level["code"]: level["colour"] for level in clips["levels"]}
    for film, svg in zip(links, re.findall(r"<svg.*?</svg>", strips), strict=True):
        own = [
            at for at, number in enumerate(clips["film"]) if clips["films"][number]["id"] == film
        ]
        lanes = {}
        for name, shape in re.findall(r'class="(\w+)" d="(.*?)"', svg):
            spans = [tuple(map(int, span)) for span in re.findall(r"M(\d+) \d+H(\d+)", shape)]
            lanes[name] = spans

        def drawn(name, place, lanes=lanes):
            return any(low <= (place + 0.5) * 20 < high for low, high in lanes.get(name, []))

        for place, at in enumerate(own):  # fifty clips of 20 units
            level = clips["levels"][clips["level"][at]]["code"]
            assert drawn(colours[level], place)
            if at in row:
                wrong = view["label"][row[at]] != view["called"][row[at]]
                assert drawn("differs", place) == wrong
                assert drawn("model", place) == bool(view["called"][row[at]])
            else:
                assert not drawn("differs", place)


def explorer(html):
    return json.loads(re.search(r'id="explorer-data">(.*?)</script>', html, re.S)[1])


def decoded(column):
    return np.array([np.nan if one is None else one * column["unit"] for one in column["of"]])


@pytest.mark.parametrize("name", ["first", "second", "films", "concepts", "classes"])
def test_the_explorer_shows_the_predictions(results, name):
    run = results[name]
    data = explorer(render_report([run]))
    folder, clips = Folder(run.run.folder), data["clips"][0]
    assert sorted(clips["ids"]) == sorted(folder.clips)
    for view in data["views"]:
        tests = [view["task"]] if view["task"] else list(folder.record["tests"])
        said, fits = {}, {}
        for (model, test, number), (ids, labels, of) in folder.said.items():
            if model == view["model"] and test in tests:
                for one, label, p in zip(ids, labels.tolist(), of, strict=True):
                    said.setdefault(one, (label, {}))[1][number] = p
        ids = [clips["ids"][at] for at in view["at"]]
        assert sorted(ids) == sorted(said)
        assert view["label"] == [said[one][0] for one in ids]
        fits = [list(said[one][1].values()) for one in ids]
        assert view["fits"] == list(map(len, fits))
        mean = np.array([np.mean(of, axis=0) for of in fits])
        shown = np.array([decoded(one) for one in view["p"]]).T
        np.testing.assert_allclose(shown, mean.reshape(shown.shape), atol=0.00051)
        called = mean.argmax(axis=1) if mean.ndim == 2 else (mean > 0.5).astype(int)
        assert view["called"] == called.tolist()
        if "low" in view:
            last = [np.array(of)[..., -1] if np.ndim(of) == 2 else of for of in fits]
            np.testing.assert_allclose(decoded(view["low"]), list(map(min, last)), atol=0.00051)
            np.testing.assert_allclose(decoded(view["high"]), list(map(max, last)), atol=0.00051)
    for at, one in enumerate(clips["ids"]):
        row = folder.clips[one]
        assert clips["levels"][clips["level"][at]]["code"] == row["level"]
        marked = [clips["concepts"][place] for place in clips["shows"][at]]
        assert sorted(marked) == sorted(filter(None, row["concepts"].split("|")))
        unused = {why for why, of in data["runs"][0]["unused"].items() if at in of}
        assert unused == set(filter(None, [row["used"]]))


@pytest.mark.parametrize("name", ["first", "second", "films", "classes"])
def test_the_explorer_shows_the_explanations(results, name):
    run = results[name]
    data = explorer(render_report([run]))
    folder, clips = Folder(run.run.folder), data["clips"][0]
    kinds = set()
    for view in data["views"]:
        lines = [one for one in folder.explained if one["model"] == view["model"]]
        assert ("why" in view) == any(line["kind"] != "sensitivity" for line in lines)
        if "why" not in view:
            continue
        why = view["why"]
        kinds.add(why["kind"])
        ids = [clips["ids"][at] for at in view["at"]]
        if why["kind"] == "path":
            check_paths(view, ids, lines, folder)
            continue
        amounts = np.array([decoded(one) for one in why["amounts"]]).T
        values = np.array([decoded(one) for one in why["values"]]).T
        for row, one in enumerate(ids):
            mine = [(line, line["ids"].index(one)) for line in lines if one in line["ids"]]
            if len({line["labels"][at] for line, at in mine}) > 1:
                assert np.isnan(amounts[row]).all()  # parts of different classes have no mean
                continue
            for shown, what, unit in (
                (amounts[row], "amounts", why["amounts"]),
                (values[row], "values", why["values"]),
            ):
                mean = np.mean([line[what][at] for line, at in mine], axis=0)
                assert mine[0][0]["concepts"] == why["concepts"]
                np.testing.assert_allclose(shown, mean, atol=max(c["unit"] for c in unit) * 0.51)
            for what in ("intercept", "residual"):
                if what in why:
                    mean = np.mean([line[what][at] for line, at in mine])
                    assert decoded(why[what])[row] == pytest.approx(
                        mean, abs=why[what]["unit"] * 0.51
                    )
    assert (
        kinds
        == {
            "first": {"path", "sum"},
            "second": {"sum"},
            "films": {"sum"},
            "classes": {"sum"},
        }[name]
    )


def check_paths(view, ids, lines, folder):
    why = view["why"]
    for row, one in enumerate(ids):
        line = next(line for line in lines if line["fit"] == why["fit"][row])
        at = line["ids"].index(one)
        conditions = [(*why["conditions"][place], share) for place, share in why["paths"][row]]
        steps = line["steps"][at]
        assert [why["concepts"][concept] for concept, *_ in conditions] == list(
            dict.fromkeys(line["concepts"][concept] for concept, _, _ in steps)
        )
        for concept, low, high, percentile in conditions:
            column = line["concepts"].index(why["concepts"][concept])
            scores = [values[column] for values in line["values"]]
            asked = [(t, above) for concept, t, above in steps if concept == column]
            above, below = ([t for t, side in asked if side is s] for s in (True, False))
            count = [
                100 * np.mean(np.array(scores) <= t)
                for t in (max(above, default=-9e9), min(below, default=9e9))
            ]
            assert (low is None, high is None) == (not above, not below)
            assert low is None or low == pytest.approx(count[0], abs=1)
            assert high is None or high == pytest.approx(count[1], abs=1)
            own = 50 * (
                np.mean(np.array(scores) < scores[at]) + np.mean(np.array(scores) <= scores[at])
            )
            assert percentile == pytest.approx(own, abs=0.51)
            assert (low or 0) <= percentile <= (100 if high is None else high)
        # No other fit's probability is nearer to the mean that is shown.
        of = {
            run: said[ids_.index(one)]
            for (model, _, run), (ids_, _, said) in folder.said.items()
            if model == view["model"] and one in ids_
        }
        mean = np.mean(list(of.values()))
        nearest = min(abs(p - mean) for p in of.values())
        assert abs(of[why["fit"][row]] - mean) == pytest.approx(nearest)


def test_a_films_line_counts_what_the_explorer_counts(results):
    # The page's F1 of a film is that of the mean probabilities the explorer draws.
    run = results["first"]
    html = render_report([run])
    data = explorer(html)
    view, clips = data["views"][0], data["clips"][0]
    for key, value, _ in Numbers(html).found:
        parts = key.split("/")
        if parts[0] == "film" and parts[2:4] == [view["model"], "pooled"] and parts[-1] == "f1":
            rows = [
                row for row, at in enumerate(view["at"]) if clips["ids"][at].startswith(parts[4])
            ]
            labels = [view["label"][row] for row in rows]
            assert value == pytest.approx(
                f1_score(labels, [view["called"][row] for row in rows], zero_division=0), abs=1e-6
            )
