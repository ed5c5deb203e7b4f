"""Runs on the shipped example and on a world unlike the paper's, and pages of them."""

import json
import re
from html import unescape
from importlib.resources import files
from pathlib import Path

import krippendorff
import numpy as np
import pandas as pd
import pytest
from msgspec import structs

import obygaze_models as om
from obygaze_features.manifests import Manifest
from tests.experiments.conftest import no_waiting  # noqa: F401
from tests.kit.page import open_tab
from tests.kit.run import labelled, write_store
from tests.kit.world2 import make_world2

EXAMPLE = Path(__file__).parents[2] / "examples/mobygaze"
BANK = {"name": "pcbm-logistic", "negatives": "b", "bank__C": 0.1}
EIGHT = [f"tt{n:07}" for n in (97576, 110912, 119822, 120338, 375679, 467406, 1045658, 2267998)]
MODEL = re.compile(r" (logistic|pcbm-\S+|ridge)\b.*")
"""A row's model, after its heading."""
SURE = {"positives": ("A+",), "train_negatives": ("A",)}
TREE = BANK | {"name": "pcbm-tree"}
PAIRS = {
    "concepts": ("smoke, fire", "red vs blue"),
    "negatives": "b",
    "estimators": (BANK,),
}
WORLD2 = {
    "levels": SURE | {"estimators": (BANK, TREE)},
    "concepts": PAIRS,
    "classes": {"levels": ("very-high", "A", "A+")},
}


class Page:
    """The text of a page outside scripts, and the cells of its tables by row."""

    def __init__(self, path):
        self.html = Path(path).read_text(encoding="utf-8")
        body = re.sub(r"<(script|style)\b.*?</\1>", "", self.html, flags=re.S)
        self.text = plain(body)
        self.title = plain(re.search(r"<h1>.*?</h1>", body, re.S)[0])
        self.rows = []
        for row in re.findall(r"<tr\b.*?</tr>", body, re.S):
            cells = [*map(plain, re.findall(r"<t[dh]\b.*?</t[dh]>", row, re.S))]
            if cells:
                self.rows.append([MODEL.sub("", cells[0]), *cells[1:]])

    @property
    def data(self):
        """What the page's script reads."""
        return json.loads(re.search(r'id="explorer-data">(.*?)</script>', self.html, re.S)[1])

    def row(self, name, number=0, cells=None):
        """Return the cells beside a heading; `number` counts the rows with it and `cells`."""
        rows = [row[1:] for row in self.rows if row[0] == name]
        return [row for row in rows if cells in (None, len(row))][number]


def nominal_alpha(*raters):
    """Krippendorff's alpha of raters' numbers, by another package."""
    return krippendorff.alpha(np.array(raters, float), level_of_measurement="nominal")


def shown(value):
    return f"{value:.2f}".replace("-", "−")


def plain(html):
    return " ".join(unescape(re.sub(r"<[^>]*>", "", html)).split())


def axe(tab):
    """Return the serious findings of axe-core, each with its rule and location."""
    source = (files("axe_core_python") / "axe.min.js").read_text(encoding="utf-8")
    tab.run(f"{source};0")
    violations = tab.run(
        "axe.run(document, {resultTypes: ['violations']}).then(r => r.violations.map("
        "v => [v.id, v.impact, v.nodes.map(n => n.html.slice(0, 120))]))"
    )
    return [entry for entry in violations if entry[1] in {"serious", "critical"}]


def make_example(folder, films, concepts):
    """Write the page and the runs of the shipped example, of some films and concepts."""
    runs = [folder / name for name in ("level", "length", "concepts")]
    Manifest.load(EXAMPLE / "minutes").select(films=films).save(folder / "minutes")
    for run in runs:
        experiment = om.load_experiment(EXAMPLE / f"{run.name}.toml")
        changes = {"manifest": folder / "minutes", "concepts": experiment.concepts[:concepts]}
        om.run_experiment(structs.replace(experiment, **changes), run)
    return om.report(runs, folder / "page.html")


def predicted(folder, *, films, signal, seed=1, name="given", score=None):
    """Run an experiment with given predictions, which are higher for Sure by `signal`."""
    ids = [f"tt{film:03}-{scene:03}" for film in range(films) for scene in range(30)]
    is_sure = np.arange(len(ids)) % 3 == 0
    places = {"manifest": folder / "manifest", "store": folder / "x.zarr"}
    if not places["store"].exists():
        folds = [row // 30 for row in range(len(ids))]
        manifest = labelled(ids, np.where(is_sure, "S", "EN").tolist(), folds=folds)
        manifest.save(places["manifest"])
        row = np.ones(8, np.float32)
        write_store(places["store"], manifest, dict.fromkeys(ids, row))
    noise = np.random.default_rng(seed).random(len(ids))
    p = 0.25 + 0.5 * noise + signal * is_sure
    table = pd.DataFrame({"id": ids, "model": "given", "probability": p.clip(0, 1)})
    table.to_csv(folder / "p.csv", index=False)
    classes = {"positives": ["S"], "train_negatives": ["EN"], "estimators": [], "score": score}
    files = [folder / "p.csv"]
    experiment = om.Experiment(name=name, split="ten", predictions=files, **classes, **places)
    return om.run_experiment(experiment, folder / f"{name} {seed}")


@pytest.fixture(scope="session")
def example(tmp_path_factory):
    """The page of eight of the shipped example's films, and of two of its six concepts."""
    return make_example(tmp_path_factory.mktemp("example"), EIGHT, 2)


@pytest.fixture(scope="session")
def world2(tmp_path_factory):
    return make_world2(tmp_path_factory.mktemp("world2"))


@pytest.fixture(scope="session")
def run_world2(world2):
    """Return a function that runs an experiment on a world unlike the paper's."""

    def run(folder, **options):
        places = {"manifest": world2.manifest, "store": world2.store}
        options = {"name": "own", "estimators": ("logistic",), "split": "three"} | places | options
        return om.run_experiment(om.Experiment(**options), folder)

    return run


@pytest.fixture(scope="session")
def pages2(run_world2, tmp_path_factory):
    """The pages of levels, concepts and classes of a world unlike the paper's."""
    folder = tmp_path_factory.mktemp("pages2")
    pages = {}
    for name, options in WORLD2.items():
        run = run_world2(folder / name, **options)
        pages[name] = om.report(run, folder / f"{name}.html")
    return pages


@pytest.fixture(scope="session")
def run2(pages2):
    """The folder of the run on levels of a world unlike the paper's."""
    return pages2["levels"].with_suffix("")


@pytest.fixture(scope="session")
def tab():
    with open_tab() as opened:
        yield opened
