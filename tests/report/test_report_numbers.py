"""The numbers of a page as data, recomputed from the predictions."""

import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from sklearn import metrics as theirs
from sklearn.linear_model import LogisticRegression

from obygaze_features.common.files import sha256_of
from obygaze_features.common.package import reference_json
from obygaze_features.common.tables import format_table
from obygaze_features.page.html import number
from obygaze_models.report.annotators import gamma_figure, load_annotators
from obygaze_models.report.concepts import concept_figures, concept_tables
from obygaze_models.report.explorer import explorer_data, in_scene_order
from obygaze_models.report.films import film_strips
from obygaze_models.report.findings import beside_annotators, findings
from obygaze_models.report.headline import headline
from obygaze_models.report.limits import limits
from obygaze_models.report.runs import default_run, prepare_runs, score_tables
from obygaze_models.report.score_figure import score_figure
from tests.kit.floats import close
from tests.kit.predicted import clips_of, fits_of
from tests.kit.run import LEVELS
from tests.report.conftest import (
    EXPERIMENTS,
    plain,
    renamed,
    render_report,
    with_manifest,
    with_record,
)


def first_screen(*runs):
    prepared = prepare_runs(runs)
    run = default_run(prepared)
    return headline(score_tables(prepared), run, load_annotators(run))


def values(html):
    """Return the numbers in a piece of HTML, at full length."""
    return [float(value) for value in re.findall(r'<data value="(.*?)"', html)]


def tips(svg):
    lines = re.search(r"<desc>([^<]*)</desc>", svg)[1].split("\n")[1:]
    return dict(line.rsplit(": ", 1) for line in lines)


def states(tip, value):
    """Return True if a tooltip states a value to two digits."""
    return float(tip.split(" (")[0].replace("−", "-")) == pytest.approx(value, abs=0.0051)


def mean_probabilities(run, model):
    """Return each clip's label, and the mean probability over the fits that tested it."""
    clips = {}
    for fit in fits_of(run):
        if fit.model == model:
            for clip, label, p in zip(fit.ids, fit.labels, fit.probabilities, strict=True):
                clips.setdefault(clip, (int(label), {}))[1][fit.fit] = p
    return {clip: (label, np.mean([*ps.values()], axis=0)) for clip, (label, ps) in clips.items()}


@pytest.mark.parametrize(
    ("value", "form", "text"),
    [(2 / 3, "", "0.67"), (-0.25, "+", "−0.25"), (0.25, "+", "+0.25"), (-0.004, "+", "0.00"),
     (2 / 3, "%", "67%"), (7637, ",", "7,637"), (None, "", "–")],
)  # fmt: skip
def test_numbers_are_rounded_for_readers(value, form, text):
    assert plain(number(value, form=form)) == text


def test_the_findings_state_the_headline_models_scores(annotated, annotators):
    run = annotated["films"]
    head = first_screen(run)
    assert head.row.model == next(iter(run.models))
    verdict, annotated_, model, named = findings(head)
    levels = [labels.level_of for labels in annotators[1]]
    agreed = sum(all(codes.get(clip) == "S" for codes in levels) for clip in run.clips["id"])
    assert values(annotated_) == [50, 200, agreed]
    entry = next(e for e in run.model_scores if e.model == head.row.model)
    fits = [
        (fit.labels, fit.probabilities > 0.5) for fit in fits_of(run) if fit.model == entry.model
    ]
    assert ", on average over f" in plain(model)
    measures = (theirs.recall_score, theirs.precision_score)
    expected = [np.mean([measure(*fit) for fit in fits]) for measure in measures]
    counts = Counter(run.clips["level"])
    expected = [200 - counts["NS"], counts["NS"], expected[0], counts["S"], *expected[1:]]
    assert values(model) == close(expected)
    models = {fit.model for fit in fits_of(run)}
    assert values(named) == [len(models)]
    assert f"result of {entry.model}, which the experiment lists first" in plain(named)
    assert any("that are Not Sure" in line for line in limits(head))
    areas = [theirs.roc_auc_score(f.labels, f.probabilities) for f in fits_of(run)
             if f.model == entry.model]  # fmt: skip
    f1 = [entry.mean["f1"], head.row.best_guess("f1")[1]]
    expected = [np.mean(areas), np.mean(areas), *entry.interval["auroc"], *f1]
    assert values(verdict) == close(expected)
    assert " ranks clips better than chance. Given one Sure and one " in verdict
    displayed = tips(score_figure(head))
    assert displayed[f"{entry.model}, model"].startswith(f"{entry.mean['auroc']:.2f} (")


@pytest.mark.parametrize("copies", [4, 5])
def test_the_first_chart_has_twelve_models_and_their_total(results, copies):
    runs = [with_record(results["first"], name=f"run {number}") for number in range(copies)]
    chart = score_figure(first_screen(*runs))
    models = [mark for mark in tips(chart) if mark.endswith(", model")]
    assert len(models) == 12
    note = plain(chart.partition("</svg>")[2])
    assert note == ("" if copies == 4 else "The 12 best of 15 scores. Methods lists all.")


def test_the_model_is_compared_with_each_annotator(annotated, annotators):
    run = annotated["films"]
    model, test = first_screen(run).row.model, "EN+HN vs S"
    rater = {
        "name": model, "kind": "model", "difference": -0.1, "interval": [-0.2, -0.05],
        "kappa": {"anna": 0.3, "bert": 0.3},
    }  # fmt: skip
    compared = {
        "annotators": ["anna", "bert"], "classes": ["EN+HN", "S"], "clips": 90, "films": 4,
        "too_few": "", "agreement": 0.4, "raters": [rater],
    }  # fmt: skip
    head = first_screen(with_record(run, annotators={test: compared}))
    (detail,) = beside_annotators(head)
    assert "agree with each other (kappa 0.40)" in plain(detail)
    assert "\N{MINUS SIGN}0.10" in detail
    assert "the model agrees less." in detail
    numbered = renamed(with_record(run, annotators={test: compared}), {model: f"{model}-2"})
    assert f"{model}-2 agrees with anna" in plain(beside_annotators(first_screen(numbered))[0])
    assert "kappa" not in " ".join(findings(head))
    anna, bert = (labels.level_of for labels in annotators[1])
    over_all = theirs.cohen_kappa_score([anna[clip] for clip in bert], [*bert.values()])
    assert values(detail) == close([over_all])


def test_each_films_strip_has_its_numbers_and_lanes(annotated, annotators):
    run = annotated["films"]
    head = first_screen(run)
    ordered = in_scene_order(head.run.clips)
    strips = film_strips(head, ordered)
    means = mean_probabilities(run, head.row.model)
    levels = {labels.name: labels.level_of for labels in annotators[1]}
    assert strips.lanes == ("anna", "bert", head.row.model, "differs")
    areas = [values(strip.numbers[strips.rank])[0] for strip in strips.films]
    assert (strips.rank, areas) == ("AUROC", sorted(areas, reverse=True))
    for strip in strips.films:
        clips = [clip for clip in ordered if clip.film == strip.film]
        ids = [clip.id for clip in clips]
        numbers = {name: values(cell) for name, cell in strip.numbers.items()}
        assert numbers["Sure"] == [close(np.mean([c.level == "S" for c in clips]))]
        tested = [clip for clip in ids if clip in means]
        assert numbers["Clips tested"] == [len(tested), len(ids)]
        called = {clip: means[clip][1] > 0.5 for clip in tested}
        truth = [means[clip][0] for clip in tested]
        guess = theirs.f1_score(truth, [1] * len(truth))
        assert numbers["Guess: all positive"] == [close(guess)]
        fits = [
            (fit.labels, fit.probabilities)
            for fit in fits_of(run)
            if fit.model == head.row.model and set(fit.ids) == set(tested)
        ]
        f1 = [theirs.f1_score(labels, p > 0.5) for labels, p in fits]
        areas = [theirs.roc_auc_score(labels, p) for labels, p in fits]
        assert numbers["F1 positive"] == [close(np.mean(f1))]
        assert numbers["AUROC"] == [close(np.mean(areas))]
        common = [clip for clip in ids if clip in levels["bert"]]
        equal = [levels["anna"][clip] == levels["bert"][clip] for clip in common]
        assert numbers["Same level"] == ([close(np.mean(equal))] if common else [])
        gammas = load_annotators(head.run).gammas
        assert numbers["Gamma"] == close([gammas[strip.film]] if common else [])
        colours = dict(zip(LEVELS, (colour for colour, _ in strips.levels), strict=True))
        expected = [[colours.get(codes.get(clip), "") for clip in ids] for codes in levels.values()]
        unknown = {clip: "untested" for clip in ids if clip not in means}
        expected.append([unknown.get(clip, "model" if called.get(clip) else "") for clip in ids])
        wrong = {clip for clip in tested if called[clip] != means[clip][0]}
        expected.append([unknown.get(clip, "differs" if clip in wrong else "") for clip in ids])
        assert lanes_of(strip.lanes, len(ids)) == expected


def lanes_of(svg, clips):
    """Return the colour of each clip in each lane, read from the drawn shapes."""
    lanes = [[""] * clips for _ in range(4)]
    for colour, shape in re.findall(r'class="(\w+)" d="(.*?)"', svg)[1:]:  # the first is behind
        for low, y, high in re.findall(r"M(\d+) (\d+)H(\d+)v", shape):
            for clip in range(int(low) * clips // 1000, int(high) * clips // 1000):
                lanes[int(y) // 15][clip] = colour
    return lanes


def test_the_papers_numbers_are_beside_ours(results):
    table = score_tables(prepare_runs([with_manifest(results["first"], name="obygaze12")]))[0]
    papers = {row.model: row.published for row in table.rows if row.entry.test == "EN vs S"}
    published = reference_json("published.json")
    for model, row, metric in (("mlp", "X-CLIP", "f1_weighted"), ("pcbm-tree", "PCBM-DT", "f1")):
        paper = published["table2"]["rows"][row]["values"]["HN-S/EN-S"]
        assert (papers[model][metric].mean, papers[model][metric].row) == (paper["mean"], row)
    drawn = with_manifest(renamed(results["films"], {"tt0": "tt0108160"}), name="obygaze12")
    for run in (drawn, with_record(drawn, balance="none")):
        run.model_scores.sort(key=lambda entry: entry.model != "mlp")
        for entry in run.model_scores:
            entry.mean["f1"] = float(entry.model == "mlp")
        strips = film_strips(first_screen(run), in_scene_order(clips_of(run))).films
        papers = {strip.film: strip.numbers.get("Paper") for strip in strips}
        if run is drawn:  # the paper's were trained on all clips as they are
            assert set(papers.values()) == {None}
    film = published["table4"]["rows"]["tt0108160"]["mean"]
    assert [values(papers["tt0108160"]), papers["tt1"]] == [[film], None]


def test_two_annotators_are_counted_against_each_other(annotated, annotators):
    run = default_run(prepare_runs([annotated["films"]]))
    loaded = load_annotators(run)
    anna, bert = (labels.level_of for labels in annotators[1])
    pairs = Counter((anna[clip], bert[clip]) for clip in bert)
    html = render_report([annotated["films"]]).partition('id="agreement"')[2]
    text = html.partition("</p>")[0]
    table = html.partition("<tbody>")[2].partition("</tbody>")[0]
    cells = re.findall(r'<th scope="row">(.*?)</th>(.*?)</tr>', table)
    rows = {name: values(cell) for name, cell in cells}
    assert rows == {LEVELS[a]: [pairs[a, b] for b in LEVELS] for a in LEVELS}
    equal = sum(pairs[level, level] for level in LEVELS)
    assert values(text)[:2] == [close(equal / 120), 120]
    totals = [sum(pairs["S", b] for b in LEVELS), sum(pairs[a, "S"] for a in LEVELS)]
    assert values(text)[2:] == sorted(totals, reverse=True)
    displayed = tips(gamma_figure(loaded, {"tt1": "Another", "tt0": "Film"}))
    distances = reference_json("scheme-obygaze.json")["distances"]
    position = distances["levels"].index
    pairs = [(anna[clip], bert[clip]) for clip in bert if clip.startswith("tt0")]
    common = [(position(a), position(b)) for a, b in pairs]
    observed = np.mean([distances["matrix"][a][b] for a, b in common])
    by_chance = np.mean([distances["matrix"][a][b] for a, _ in common for _, b in common])
    assert list(displayed.values()) == sorted(displayed.values(), reverse=True)
    assert float(displayed["Film"]) == pytest.approx(1 - observed / by_chance, abs=0.05)


def concept_rankings(run, model, concept):
    """Return each fit's AUROC and AP of a concept, and the clips that have it, of all counted."""
    ranked, truth = [], {}
    reasons, clips = run.reasons, clips_of(run)
    own = reasons[(reasons["model"] == model) & (reasons["concept"] == concept)]
    for _, rows in own[own["step"].isna()].groupby("fit"):
        counted = rows[[clips[clip].level != "NS" for clip in rows["id"]]]
        shows = [
            clips[clip].level in ("HN", "S") and concept in clips[clip].concepts
            for clip in counted["id"]
        ]
        truth |= dict(zip(counted["id"], shows, strict=True))
        if len(set(shows)) == 2:
            areas = theirs.roc_auc_score, theirs.average_precision_score
            ranked.append([area(shows, counted["value"]) for area in areas])
    return np.array(ranked), truth


def test_concept_tables_rank_by_measured_concepts(results):
    first, second = results["first"], results["second"]
    tables = concept_tables(prepare_runs([second, first]))
    assert (tables.run, tables.models) == ("second", ("pcbm-elastic-net",))
    for concept, *cells in tables.rows:
        ranked, truth = concept_rankings(second, "pcbm-elastic-net", concept)
        expected = [[sum(truth.values())], [len(truth) - sum(truth.values())]]
        expected += [[column.mean(), column.std()] for column in ranked.T]
        assert [values(cell) for cell in cells] == [close(cell) for cell in expected]
    for row, model in zip(tables.others, ("pcbm-tree", "pcbm-logistic"), strict=True):
        assert plain(row[0]).startswith(f"first{model}, ")
        for concept, cell in zip(tables.names, row[1:], strict=True):
            column = concept_rankings(first, model, concept)[0][:, 0]
            assert values(cell) == close([column.mean(), column.std()])


def test_concept_figures_share_their_rows(annotated, annotators, tmp_path):
    classes = {"EN": "negative", "HN": "negative", "S": "positive"}
    anna, bert = annotators[1]
    votes = [[classes.get(labels.level_of.get(clip), "") for labels in (anna, bert)]
             for clip in anna.ids]  # fmt: skip
    differing = {c for c, (a, b) in zip(anna.ids, votes, strict=True) if a and b and a != b}
    columns = {"test": ["EN+HN vs S"] * len(votes), "id": anna.ids}
    columns |= {"label of anna": [a for a, _ in votes], "label of bert": [b for _, b in votes]}
    (tmp_path / "annotators.csv").write_text(format_table(columns), encoding="utf-8")
    run = annotated["films"]
    files = run.header.files | {"annotators.csv": sha256_of(tmp_path / "annotators.csv")}
    run = replace(with_record(run, files=files), folder=tmp_path)
    head = first_screen(run)
    marked = {
        name: {
            level: np.mean([name in c.concepts for c in clips_of(run).values() if c.level == level])
            for level in ("HN", "S")
        }
        for name in ("Look", "Body", "Posture")
    }
    order = sorted(marked, key=lambda name: marked[name]["HN"] - marked[name]["S"])
    figures = [figure for figure, _ in concept_figures(head)]
    assert " (seen)" not in figures[0]  # a sense tells nothing if all concepts have the same
    mixed = first_screen(with_manifest(run, senses={"Look": "seen", "Body": "heard"}))
    assert " (heard)" in concept_figures(mixed)[0][0]
    for svg in figures:
        rows = [text for text in re.findall(r"<text[^>]*>([^<]*)</text>", svg) if text in marked]
        assert rows == order
    shares, detected, kappas, errors = map(tips, figures)
    for name in marked:
        assert states(shares[f"{name}, Sure"].replace("%", "e-2"), marked[name]["S"])
        assert states(
            detected[f"{name}, measured by pcbm-logistic"],
            concept_rankings(run, "pcbm-logistic", name)[0][:, 0].mean(),
        )
        a, b = ([name in labels.concepts_of[clip] for clip in annotators[1][1].ids]
                for labels in annotators[1])  # fmt: skip
        assert states(kappas[f"{name}, kappa"], theirs.cohen_kappa_score(a, b))
    means = mean_probabilities(run, head.row.model)
    wrong = [(p > 0.5) != label for label, p in means.values()]
    names = [*order, *(level for level in LEVELS if level != "NS")]
    clips = [clips_of(run)[clip] for clip in means]
    marks = [[n == clip.level or n in clip.concepts for n in names] + [clip.id in differing]
             for clip in clips]  # fmt: skip
    fitted = LogisticRegression(C=1.0, tol=1e-8, max_iter=1000).fit(marks, wrong)
    coefficients = dict(zip(order, fitted.coef_[0], strict=False))
    for name, coefficient in (coefficients | {"annotators differ": fitted.coef_[0][-1]}).items():
        (tip,) = (text for mark, text in errors.items() if mark.startswith(f"{name}, interval"))
        assert states(tip, coefficient)
    assert values(concept_figures(head)[3][1]) == [sum(wrong), len(wrong)]


def opened(run):
    prepared = prepare_runs([run])
    return explorer_data(prepared[0].models[0], prepared, {})


def decoded(column):
    return np.array([np.nan if value is None else value * column["unit"] for value in column["of"]])


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_the_explorer_has_each_prediction_and_reason(results, name):
    run = results[name]
    data = opened(run)
    clips = data["clips"][0]
    for view in data["views"]:
        tests = [view["task"]] if view["task"] else list(run.tests)
        fits, labels = {}, {}
        for fit in fits_of(run):
            if fit.model == view["model"] and fit.test in tests:
                labels |= dict(zip(fit.ids, fit.labels.tolist(), strict=True))
                for clip, p in zip(fit.ids, fit.probabilities, strict=True):
                    fits.setdefault(clip, {})[fit.fit] = p
        ids = [clips["ids"][at] for at in view["at"]]
        assert sorted(ids) == sorted(fits)
        assert view["label"] == [labels[clip] for clip in ids]
        assert view["fits"] == [len(fits[clip]) for clip in ids]
        mean = np.array([np.mean(list(fits[clip].values()), axis=0) for clip in ids])
        displayed = np.array([decoded(column) for column in view["p"]]).T
        np.testing.assert_allclose(displayed, mean.reshape(displayed.shape), atol=0.00051)
        called = mean.argmax(axis=1) if mean.ndim == 2 else (mean > 0.5).astype(int)
        assert view["called"] == called.tolist()
        for end, extreme in (("low", min), ("high", max)):
            expected = [extreme(np.atleast_1d(p)[-1] for p in fits[clip].values()) for clip in ids]
            if max(view["fits"]) > 1:
                np.testing.assert_allclose(decoded(view[end]), expected, atol=0.00051)
        reasons = run.reasons
        own = reasons[reasons["model"] == view["model"]]
        kinds = {view["why"]["kind"]} if "why" in view else set()
        assert {*own["kind"]} == kinds
        for row, clip in enumerate(ids if "why" in view else ()):
            check = check_path if view["why"]["kind"] == "path" else check_sum
            check(view["why"], row, clip, own, fits[clip])
    for at, clip in enumerate(map(clips_of(run).get, clips["ids"])):
        assert clips["levels"][clips["level"][at]]["code"] == clip.level
        assert {clips["concepts"][index] for index in clips["shows"][at]} == set(clip.concepts)
        reasons = {reason for reason, indices in data["runs"][0]["unused"].items() if at in indices}
        assert reasons == {clip.used} - {""}


def check_sum(view, row, clip, reasons, _):
    """Check that a clip's parts are means over its fits, unless fits predict different classes."""
    own = reasons[reasons["id"] == clip]
    if own["class"].nunique() > 1:
        assert all(column["of"][row] is None for column in view["amounts"])
        return
    means = own.groupby("concept", observed=True)[["value", "part"]].mean()
    columns = {("(intercept)", "part"): view["intercept"]} if "intercept" in view else {}
    for part, key in (("value", "values"), ("part", "amounts")):
        named = zip(view["concepts"], view[key], strict=True)
        columns |= {(name, part): column for name, column in named}
    for (name, part), column in columns.items():
        expected = pytest.approx(means.loc[name, part], abs=column["unit"] * 0.51)
        assert decoded(column)[row] == expected


def check_path(view, row, clip, reasons, fits):
    """Check that a clip's questions are those of the fit nearest to the mean probability."""
    mean = np.mean(list(fits.values()))
    chosen = abs(fits[view["fit"][row]] - mean)
    assert chosen == close(min(abs(p - mean) for p in fits.values()))
    own = reasons[reasons["fit"] == view["fit"][row]]
    asked = own[(own["id"] == clip) & own["step"].notna()].sort_values("step")
    concepts, steps = view["concepts"], view["paths"][row]
    for (concept, value, above, threshold), step in zip(steps, asked.itertuples(), strict=True):
        assert (concepts[concept], above) == (step.concept, step.above)
        assert value == close(step.value, eps=1e-3)
        assert threshold == close(step.threshold, eps=1e-3)
