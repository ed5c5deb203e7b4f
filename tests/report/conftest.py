"""Runs of every kind on a small world, and pages of them; each is made once."""

import json
import re
from dataclasses import fields, is_dataclass, replace
from html import unescape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
import pytest
from msgspec import Struct, convert, structs, to_builtins
from pandas.api.types import is_numeric_dtype

from obygaze_features.manifests import LabelSet, Manifest, Split
from obygaze_features.manifests.labels import SEPARATOR
from obygaze_models.data.warnings import RunWarning
from obygaze_models.experiments.experiment import Experiment
from obygaze_models.experiments.reasons import join_reasons, tabulate_reasons
from obygaze_models.experiments.run import run_experiment
from obygaze_models.experiments.tables import Header, Run, load_run
from obygaze_models.explain.attributions import Attribution, Step
from obygaze_models.explain.clips import Clip
from obygaze_models.report.page import report as write_report
from tests.experiments.conftest import no_waiting_for_the_disk  # noqa: F401
from tests.kit.page import open_tab
from tests.kit.predicted import FitOf, table_of
from tests.kit.run import LEVELS, RECIPE, make_world

CONCEPTS = (
    "Type of shot", "Look", "Body", "Posture", "Clothing", "Appearance", "Expression of emotion",
    "Activity",
)  # fmt: skip

TREE, LINEAR, SPARSE = (
    {"name": f"pcbm-{head}", "negatives": "b", "bank__C": 0.1}
    for head in ("tree", "logistic", "elastic-net")
)
FOUR = {"split": "four", "protocol": "leak-free"}
SURE = {"positives": ("S",)} | FOUR
BOTH = {"test_negatives": (("EN",), ("EN", "HN"))}
EXPERIMENTS = {
    "first": SURE | BOTH | {"train_negatives": ("HN",), "estimators": ("mlp", TREE, LINEAR)},
    "second": SURE | BOTH | {"train_negatives": ("EN",), "estimators": ("mlp", SPARSE)},
    "films": {
        "positives": ("S",), "train_negatives": ("HN",), "test_negatives": (("EN", "HN"),),
        "protocol": "leave-film-out", "estimators": ("mlp", LINEAR),
    },
    "concepts": {"concepts": ("Look", "Body"), "estimators": ("logistic",)} | FOUR,
    "classes": {"levels": ("EN", "HN", "S"), "estimators": (LINEAR,)} | FOUR,
}  # fmt: skip

FORMULAS = {"tt1": "'=1", "tt2": "@a\nb", "tt3": '+1, "x"', "tt4": "-1+2"}
"""Titles of films that a spreadsheet would take for formulas."""
ODD = {"pcbm-logistic": "__proto__", "pcbm-tree": "constructor", "Body": "\u2028${hit()}",
       "Hard Negative": "<!--<script>"}  # fmt: skip


@pytest.fixture(scope="session")
def marked(tmp_path_factory):
    """A world with four folds whose store claims a backbone from the paper."""
    recipe = replace(RECIPE, backbone=RECIPE.backbone | {"name": "xclip"})
    world = make_world(tmp_path_factory.mktemp("marked"), recipe=recipe, marked=True)
    four = Split("four", world.ids, [row // 4 % 4 for row in range(len(world.ids))])
    Manifest.load(world.manifest).with_parts(splits=[four]).save(world.manifest, overwrite=True)
    return world


@pytest.fixture(scope="session")
def results(marked, tmp_path_factory):
    folder = tmp_path_factory.mktemp("report-runs")
    for name, options in EXPERIMENTS.items():
        experiment = Experiment(name=name, manifest=marked.manifest, store=marked.store, **options)
        run_experiment(experiment, folder / name)
    return {name: load_run(folder / name) for name in EXPERIMENTS}


@pytest.fixture(scope="session")
def annotators(marked, tmp_path_factory):
    """The folder of a manifest with two annotators who sometimes differ from its labels."""
    manifest = Manifest.load(marked.manifest)
    chance = np.random.default_rng(4)
    own, sets = manifest.labels(), []
    for name, size in (("anna", 200), ("bert", 120)):
        levels = [
            str(chance.choice(list(LEVELS))) if chance.random() < 0.3 else level
            for level in own.levels[:size]
        ]
        marks = [() if chance.random() < 0.2 else names for names in own.concepts[:size]]
        sets.append(LabelSet(name, own.ids[:size], levels, marks, about={"annotator": name}))
    folder = tmp_path_factory.mktemp("annotators") / "manifest"
    manifest.with_parts(labels=sets).save(folder)
    return folder, sets


@pytest.fixture(scope="session")
def annotated(results, annotators):
    there = {"manifest": str(annotators[0])}
    return {name: with_record(run, experiment=structs.replace(run.experiment, **there))
            for name, run in results.items()}  # fmt: skip


@pytest.fixture(scope="session")
def whole_html(annotated):
    return render_report(list(annotated.values()))


@pytest.fixture(scope="session")
def tab():
    with open_tab() as opened:
        yield opened


@pytest.fixture(scope="session")
def page_of(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pages")

    def write(html, name="page.html"):
        (folder / name).write_text(html, encoding="utf-8")
        return folder / name

    return write


class Page:
    """The text outside scripts, the tags, and the cells of all tables by row."""

    def __init__(self, html):
        self.html = html
        body = re.sub(r"<(script|style)\b.*?</\1>", "", html, flags=re.S)
        self.text = plain(body)
        self.tags = [(tag, dict(re.findall(r'([\w-]+)="(.*?)"', attributes)))
                     for tag, attributes in re.findall(r"<(\w+)([^>]*)>", html)]  # fmt: skip
        rows = re.findall(r"<tr\b.*?</tr>", body, re.S)
        self.rows = [[*map(plain, re.findall(r"<t[dh]\b.*?</t[dh]>", row, re.S))] for row in rows]

    def row(self, name):
        return next(row[1:] for row in self.rows if row and row[0] == name)


def explorer_of(html):
    return json.loads(re.search(r'id="explorer-data">(.*?)</script>', html, re.S)[1])


def plain(html):
    return " ".join(unescape(re.sub(r"<[^>]*>", "", html)).split())


TABLES = ("clips", "fits", "predictions", "reasons")


def with_tables(run: Run, header: Header | None = None, **tables: pd.DataFrame) -> Run:
    """Return the run with another header or other tables."""
    changed = Run(run.folder, header or run.header)
    changed.__dict__.update({name: getattr(run, name) for name in TABLES} | tables)
    return changed


def render_report(runs: list[Run], **options: Any) -> str:
    with TemporaryDirectory() as folder:
        return write_report(runs, Path(folder, "page.html"), **options).read_text(encoding="utf-8")


def with_record(results: Run, **changes: object) -> Run:
    header = convert(to_builtins(results.header) | to_builtins(changes), Header)
    return with_tables(results, header)


def with_score(run: Run, score: str) -> Run:
    return with_record(run, experiment=structs.replace(run.experiment, score=score))


def with_manifest(results: Run, **changes: object) -> Run:
    """Return the run with another name, levels or citation of its manifest."""
    return with_record(results, manifest=to_builtins(results.header.manifest) | changes)


def grown(results: Run, clips: int, *, timed: bool = False, films: int = 12) -> Run:
    """Return the run as if its models had predicted each of a number of clips of some films."""
    chance = np.random.default_rng(3)
    per_film = -(-clips // films)
    annotated = []
    for row in range(clips):
        film, scene = divmod(row, per_film)
        name, start = f"tt{film:07}", scene * 31.5 if timed else None
        level = str(chance.choice(["EN", "HN", "NS", "S"], p=[0.5, 0.2, 0.15, 0.15]))
        concepts = tuple(name for name in CONCEPTS if chance.random() < 0.2)
        clip = Clip(
            f"{name}-{scene + 1:03}", name, f"Film number {film + 1} ({1990 + film})", "",
            start, start + 30 if timed else None, level, concepts, 0,
            "not-in-task" if level == "NS" else "",
        )  # fmt: skip
        annotated.append(clip)
    ids = [clip.id for clip in annotated if not clip.used]
    labels = np.array([int(clip.level == "S") for clip in annotated if not clip.used])
    predictions, explained = [], []
    for model in results.models:
        probabilities = 1 / (1 + np.exp(1 - 2 * labels - chance.normal(size=len(ids))))
        predictions += [FitOf(model, 0, test, ids, labels, probabilities) for test in results.tests]
        values, classes = chance.normal(size=(len(ids), len(CONCEPTS))), ["positive"] * len(ids)
        parts = {"weights": np.full_like(values, 0.4), "intercept": np.full(len(ids), -0.2)}
        attribution = Attribution("sum", CONCEPTS, classes, values, **parts)
        if "tree" in model:
            steps = [[Step(name, float(row[0]), 0.5, True) for name in CONCEPTS] for row in values]
            attribution = Attribution("path", CONCEPTS, classes, values, steps=steps)
        own = tabulate_reasons(ids, classes, attribution)
        explained.append(own.assign(model=model, task="HN vs S", fit=0))
    return with_tables(
        results, clips=clips_frame(annotated), predictions=table_of(predictions),
        reasons=join_reasons(explained),
    )  # fmt: skip


def clips_frame(clips: list[Clip]) -> pd.DataFrame:
    """Convert clips to a table, as in a run."""
    rows = [vars(clip) | {"concepts": SEPARATOR.join(clip.concepts)} for clip in clips]
    return pd.DataFrame(rows).astype({"fold": "Int64", "start": float, "end": float})


def renamed(thing: Any, names: dict[str, str]) -> Any:
    if isinstance(thing, str):
        return names.get(thing, thing)
    if isinstance(thing, Run):
        tables = {name: renamed(getattr(thing, name), names) for name in TABLES}
        return with_tables(thing, renamed(thing.header, names), **tables)
    if isinstance(thing, pd.DataFrame):
        return thing.apply(lambda cells: cells if is_numeric_dtype(cells)
                           else cells.map(lambda cell: renamed(cell, names)))  # fmt: skip
    if isinstance(thing, dict):
        return {renamed(key, names): renamed(value, names) for key, value in thing.items()}
    if isinstance(thing, list | tuple):
        parts = [renamed(part, names) for part in thing]
        return type(thing)(*parts) if hasattr(thing, "_fields") else type(thing)(parts)
    if isinstance(thing, Struct):
        changed = {name: renamed(getattr(thing, name), names) for name in thing.__struct_fields__}
        return structs.replace(thing, **changed)
    if is_dataclass(thing) and not isinstance(thing, type):
        changed = {f.name: renamed(getattr(thing, f.name), names) for f in fields(thing) if f.init}
        return replace(thing, **changed)
    return thing


@pytest.fixture(scope="session")
def hostile_run(results):
    """Return a run with code in every text field, and these texts."""
    run = results["first"]
    record = run.header
    fields_ = {
        "clip": "tt0-000", "film": "tt0", "level": "S", "name": "Sure", "test": "EN vs S",
        "concept": "Look", "model": "mlp", "run": "first",
        "split": record.split, "labels": record.manifest.labels, "data": record.manifest.name,
    }  # fmt: skip
    texts = {
        field: f"{field}'\"}}{{{{ 7 * 7 }}}}<script>hit()</script><img src=x onerror=hit()>"
        for field in (*fields_, "title", "citation", "warning")
    }
    run = with_manifest(run, citation=texts["citation"], licence=texts["citation"])
    run = with_record(run, warnings=[RunWarning("other", "", texts["warning"])])
    names = {name: texts[field] for field, name in fields_.items()}
    return renamed(run, names | FORMULAS | ODD), texts
