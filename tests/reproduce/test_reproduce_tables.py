"""The paper's tables and figures, from the authors' files in miniature and drawn features; those of
the golden commands are compared to the digit there."""

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from functools import cache
from itertools import product
from unittest.mock import Mock

import numpy as np
import pytest
from sklearn.metrics import f1_score

import obygaze_features as of
import obygaze_models as om
from obygaze_features.common.package import reference_json
from obygaze_features.errors import ExperimentError
from obygaze_features.store import ArraySpec
from obygaze_models.data.run_warning import RunWarning
from obygaze_models.estimators.registry import ESTIMATORS
from obygaze_models.studies.reproduce import context, render
from obygaze_models.studies.reproduce import reproduce as module
from obygaze_models.studies.reproduce.render import Block, Line, Table, Value
from tests.conftest import run_obygaze
from tests.kit.authors import make_authors, make_dataset
from tests.kit.files import csv_rows, write
from tests.kit.floats import close
from tests.kit.run import RECIPE, write_rows, write_store

COLUMNS = {
    "EN-S/EN-S": ("EN", "EN vs S"), "HN-S/EN-S": ("HN", "EN vs S"),
    "EN-S/ENHN-S": ("EN", "EN+HN vs S"), "HN-S/ENHN-S": ("HN", "EN+HN vs S"),
}  # fmt: skip


@pytest.fixture(autouse=True, scope="module")
def few_epochs_in_one_process():
    """Train briefly, because tables are only compared with predictions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "usable_cores", lambda: 1)
        patch.setattr(os, "fsync", lambda descriptor: None)
        for name in ("mlp", "mlp-author"):
            sparse = {**ESTIMATORS[name].parameters, "max_iter": 1}
            patch.setitem(ESTIMATORS, name, replace(ESTIMATORS[name], parameters=sparse))
        yield


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("authors")
    return make_dataset(folder, make_authors(folder, scale=4), widths=(12, 12, 12))


def lines_of(folder, name):
    """Return a table's blocks: the rows of each score in the CSV, in order.

    Published rows are named after the row above them.
    """
    above, blocks = "", defaultdict(lambda: defaultdict(dict))
    for row in csv_rows(folder / f"{name}.csv"):
        if row["kind"] == "published":
            row["row"] = f"{above}: published"
        else:
            above = row["row"]
        for column in ("mean", "std", "ours_minus_published"):
            row[column] = float(row[column]) if row[column] else None
        blocks[row["block"], row["score"]][row["row"], row["kind"]][row["column"]] = row
    return blocks


def predictions(run, model):
    return [row for row in csv_rows(run / "predictions.csv") if row["model"] == model]


def weighted_f1(labels, called):
    return f1_score(labels, called, average="weighted", zero_division=0)


MEASURES = {"f1_weighted": weighted_f1, "f1": f1_score}


@cache
def scores_of(run, model, test):
    """Return the F1 of each fit by scikit-learn, by metric, from predictions.csv."""
    by_fit = defaultdict(list)
    for row in predictions(run, model):
        if row["test"] == test:
            by_fit[row["fit"]].append((row["label"] == "positive", float(row["probability"]) > 0.5))
    pairs = [tuple(map(np.array, zip(*fit, strict=True))) for fit in by_fit.values()]
    return {name: [measure(*fit) for fit in pairs] for name, measure in MEASURES.items()}


def call(dataset, output, *words, manifest=None, code=None, **stores):
    options = [part for name, path in stores.items() for part in ("--store", f"{name}={path}")]
    manifest = manifest or dataset.manifest
    words = ("--manifest", manifest, *words, *options, "-o", output)
    return run_obygaze("reproduce", *words, code=code)


def test_both_protocols_are_in_one_table(dataset, tmp_path, monkeypatch):
    store, unknown = of.open_store(dataset.stores["vivit"]), tmp_path / "unknown.zarr"
    np.save(tmp_path / "max.npy", store.read("max", missing="nan"))
    of.import_features({"max": tmp_path / "max.npy"}, of.Manifest.load(dataset.manifest), unknown,
                       ids=store.ids, backbone="vivit")  # fmt: skip
    monkeypatch.setattr(module, "_write_pages", lambda *_: [])
    words = ("table2", "--protocol", "released", "--protocol", "leak-free")
    result = call(dataset, tmp_path / "out", *words, vivit=unknown, code=0)
    assert call(dataset, tmp_path / "out", *words).exit_code == 1, "it exists"
    lost_origin = "the origin of the vivit features was not recorded"
    assert lost_origin in result.stderr
    assert lost_origin in result.stdout
    lines = [line for line in result.stderr.splitlines() if line.startswith("MISSING: ")]
    assert "X-CLIP on Kinetics with the array max. Pass its store: xclip-kinetics" in lines[1]
    assert [line.partition(" (")[2] for line in lines] == [
        "table2: X-CLIP, native, PCBM-DT and PCBM-LR)", "table2: X-CLIP, max)",
    ]  # fmt: skip
    assert lost_origin in (tmp_path / "out/table2-leakage.txt").read_text(encoding="utf-8")
    blocks = lines_of(tmp_path / "out", "table2-leakage")
    folders = [tmp_path / "out/runs" / key for key in ("released", "leak-free-released-labels")]
    for ((_, score), part), (column, (trained, test)) in product(blocks.items(), COLUMNS.items()):
        runs = (scores_of(folder / f"vivit-max-{trained}", "mlp", test) for folder in folders)
        means = [np.mean(scores[score]) for scores in runs]
        lines = [line[column] for line in part.values()]
        ours = [value["mean"] for value in lines[:3]]
        assert ours == close([*means, means[0] - means[1]])
        assert len(lines) == 3, "nothing is published for features of unknown preprocessing"
    files = (tmp_path / "out").glob("t*.*")
    assert not [path for path in files if "ours minus" in path.read_text()]
    printed = result.stdout.partition("\ntable2-leakage: ")[2]
    names = (", released", "leak-free, same", "released minus leak-free", "published", "leaks")
    assert [printed.count(name) for name in names] == [2, 2, 2, 0, 0]
    text = (tmp_path / "out/table2.txt").read_text(encoding="utf-8")
    assert "ViViT-B/16: the preprocessing is unknown, not author" in text


def copy_store(dataset, slot, path, *, mode="author", arrays=(), **backbone):
    """Copy a store as if it had been extracted, so that its features are not synthetic."""
    store = of.open_store(dataset.stores[slot])
    rows = {spec.name: store.read(spec.name) for spec in store.specs} | dict(arrays)
    about = {"name": store.attributes["backbone"]["name"], "revision": "1",
             "weights_sha256": "0" * 64, "config": {}, **backbone}  # fmt: skip
    specs = [
        ArraySpec(key, value.shape[1:], "float32", "made up", padded=value.ndim == 3)
        for key, value in rows.items()
    ]
    recipe = replace(RECIPE, backbone=about, preprocessing={"mode": mode}, arrays=tuple(specs))
    write_rows(path, of.Manifest.load(dataset.manifest), rows, recipe, block_rows=512)
    return path


@pytest.fixture(scope="module")
def table5(dataset, tmp_path_factory):
    """Run table 5 on features of a known backbone; return the output and its blocks."""
    folder = tmp_path_factory.mktemp("table5")
    native = of.open_store(dataset.stores["lsmdc"]).read("native")
    frames = np.stack([native, native - 1, np.full_like(native, np.nan)], axis=1)
    path = copy_store(dataset, "lsmdc", folder / "known.zarr", mode="standard",
                      arrays={"frames_temporal": frames})  # fmt: skip
    words = ("table5", "--protocol", "paper")
    result = call(dataset, folder / "out", *words, lsmdc=path, code=0)
    return result, lines_of(folder / "out", "table5")


def test_table_5_pools_as_the_code_and_as_the_text(table5):
    """Its network has one preprocessing, whatever the mode; the highest frame is native here."""
    for part in table5[1].values():
        ours = {name: line for (name, kind), line in part.items() if kind == "ours"}
        if ours:
            native, highest, temporal = ours.values()
            assert [*ours] == [f"X-CLIP LSMDC{end}" for end in
                               (", native", ", max", ", max of frames_temporal")]  # fmt: skip
            means = [[value["mean"] for value in row.values()] for row in (native, temporal)]
            assert means[0] == means[1] != [value["mean"] for value in highest.values()]


def test_differences_from_the_paper_need_known_features(table5):
    result, blocks = table5
    assert "published, and ours minus it" in result.stdout
    ours, published, *_ = next(iter(blocks.values())).values()
    for column, value in published.items():
        expected = ours[column]["mean"] - value["mean"]
        assert value["ours_minus_published"] == close(expected)


def test_guesses_use_the_share_of_sure_clips(dataset, table5):
    """scikit-learn scores the guess that calls every clip positive."""
    levels = of.Manifest.load(dataset.manifest).labels().levels
    blocks = {key[1]: part for key, part in table5[1].items() if "whole dataset's share" in key[0]}
    assert list(blocks) == ["f1_weighted", "f1"]
    for (score, part), (column, (_, test)) in product(blocks.items(), COLUMNS.items()):
        sure = np.array([level == "S" for level in levels if level in re.split(r" vs |[+]", test)])
        all_positive = MEASURES[score](sure, np.ones(len(sure)))
        ours = {name: line[column] for (name, _), line in part.items() if column in line}
        assert ours["Share of positives"]["mean"] == close(sure.mean())
        assert ours["All positive"]["mean"] == close(all_positive)


@pytest.mark.night
def test_figures_do_not_depend_on_the_hash_seed(tmp_path):
    """matplotlib's layout sums in the order of a set, and names clip paths by the last bits."""
    obygaze = (sys.executable, "-m", "obygaze_models.commands.main")
    clips = ("features", "demo", "base", "--count", "2", "--scenes", "12", "--seconds", "1")
    table = ("manifests", "import", "csv", "base/annotations.csv", "-o", "manifest")
    for command in (clips, table):
        subprocess.run([*obygaze, *command], cwd=tmp_path, check=True)
    drawn = set()
    for seed in range(4):
        out = ("reproduce", "fig2", "--manifest", "manifest", "-o", f"out-{seed}")
        environment = {**os.environ, "PYTHONHASHSEED": str(seed)}
        subprocess.run([*obygaze, *out], cwd=tmp_path, check=True, env=environment)
        drawn.add((tmp_path / f"out-{seed}/fig2.svg").read_bytes())
    assert len(drawn) == 1


@pytest.mark.night
def test_films_and_figures_score_the_predictions(dataset, tmp_path):
    names, folder = ["table4", "fig2", "fig5", "fig6"], tmp_path / "out"
    om.reproduce(names, dataset.manifest, dataset.stores, folder, protocols=["released"])
    assert [page.name for page in folder.glob("*.html")] == ["report-released.html"]
    drawn = ["fig2", *(f"fig5-{k}-{level}" for k in ("code", "text") for level in ("EN", "HN"))]
    for suffix in ("svg", "pdf"):
        assert sorted(path.stem for path in folder.glob(f"*.{suffix}")) == [*drawn, "fig6"]
    data, figure = (next(iter(lines_of(folder, name).values())) for name in names[::3])
    *lines, average = (line for (_, kind), line in data.items() if kind == "ours")
    by_film, by_clip = defaultdict(lambda: defaultdict(list)), defaultdict(list)
    for row in predictions(folder / "runs/leave-film-out/xclip-native-HN", "mlp"):
        label, probability = row["label"] == "positive", float(row["probability"])
        by_film[row["id"].split("-")[0]][row["fit"]].append((label, probability > 0.5))
        by_clip[row["id"], label].append(probability)
    assert {len(fits) for fits in by_film.values()} == {len(lines) - 1}
    means = []
    for line, fits in zip(lines, by_film.values(), strict=True):
        scores = [weighted_f1(*zip(*pairs, strict=True)) for pairs in fits.values()]
        ours = line["weighted"]
        assert (ours["mean"], ours["std"]) == close((np.mean(scores), np.std(scores)))
        assert line["clips"]["mean"] == len(next(iter(fits.values())))
        means.append(ours["mean"])
    assert average["weighted"]["mean"] == close(np.mean(means))
    assert "published" in (text := (folder / "table4.txt").read_text(encoding="utf-8"))
    assert "minus" not in text, "synthetic"
    # The paper's average is over films that are not tested here.
    assert list(data.values())[-1] == average
    assert "not tested here" in text
    full = next(iter(figure.values()))
    wrong = sum((np.mean(fits) > 0.5) != label for (_, label), fits in by_clip.items())
    assert (full["wrong"]["mean"], full["clips"]["mean"]) == (wrong, len(by_clip))
    assert {"Look", "EN", "HN", "S"} <= set(full)


def test_missing_stores_are_named(dataset, tmp_path):
    result = call(dataset, tmp_path / "none", "all", code=3)
    missing = [line for line in result.stderr.splitlines() if line.startswith("MISSING: ")]
    assert len(missing) <= 5
    for name in module.TARGETS:
        assert any(f"{name}: " in line for line in missing) == (name != "fig2")
        text = (tmp_path / f"none/{name}.txt").read_text(encoding="utf-8")
        assert ("MISSING: " in text) == (name != "fig2")


@pytest.mark.night
def test_other_clips_have_no_published_numbers(dataset, tmp_path):
    manifest = of.Manifest.load(dataset.manifest)
    labels = [manifest.labels(name) for name in manifest.label_names]
    renamed = of.Manifest("mine", manifest.items, scheme=manifest.scheme, default_labels="paper")
    renamed.with_parts(*labels).save(tmp_path / "mine")
    result = call(dataset, tmp_path / "table5", "table5", "--protocol", "paper", "--json",
                  manifest=tmp_path / "mine", lsmdc=dataset.stores["lsmdc"], code=0)  # fmt: skip
    kinds = {row["kind"] for row in json.loads(result.stdout)["table5"]}
    assert kinds == {"ours", "guess", "count"}
    assert "clips are from mine" in (tmp_path / "table5/table5.txt").read_text(encoding="utf-8")


def test_stores_may_be_named_after_their_backbone(dataset, tmp_path):
    older = dataset.stores["xclip"]
    own = copy_store(dataset, "xclip", tmp_path / "own.zarr", name="xclip-kinetics", family="xclip")

    def load(stores):
        return context.ReproductionContext(dataset.manifest, stores)

    for name, path in product(("xclip-kinetics", "xclip"), (own, older)):
        loaded = load({name: path})
        assert (list(loaded.stores), loaded.is_published("xclip")) == (["xclip"], True)
    for stores in ({"xclip": older, "xclip-kinetics": own}, {"vivit": own}):
        with pytest.raises(ExperimentError, match=r"own.zarr is a store of xclip-kinetics\."):
            load(stores)


@pytest.mark.parametrize(("name", "changes", "differences"), [
    ("xclip", {}, []),
    ("xclip", {"mode": "standard"}, ["mode"]),
    ("vivit", {"mode": "unknown"}, ["mode"]),
    ("xclip", {"config": {"vision_config": {"num_frames": 8}}}, ["checkpoint"]),
    ("lsmdc", {"mode": "standard"}, []),
])  # fmt: skip
def test_published_numbers_need_the_papers_features(dataset, tmp_path, name, changes, differences):
    path = copy_store(dataset, name, tmp_path / "own.zarr", **changes)
    loaded = context.ReproductionContext(dataset.manifest, {name: path})
    assert loaded.differences(name) == differences
    assert loaded.is_published(name) == (not differences)


@pytest.mark.night
@pytest.mark.parametrize("mode", ["author", "standard"])
def test_all_is_made_from_stores_of_both_modes(dataset, tmp_path, mode, monkeypatch):
    monkeypatch.setattr(module, "_write_pages", lambda *_: [])
    config = {"synthetic": "made up"}
    stores = {
        slot: copy_store(dataset, slot, tmp_path / f"{slot}.zarr", mode=mode, config=config)
        for slot in dataset.stores
    }
    done = om.reproduce("all", dataset.manifest, stores, tmp_path / "out")
    assert (done.missing, done.empty) == ({}, [])
    noted, published = set(), set()
    for table in done.tables:
        text = (tmp_path / f"out/{table.name}.txt").read_text(encoding="utf-8")
        noted |= {table.name} if "squashed to 224 x 224" in text else set()
        published |= {table.name} if re.search(r"\n +published +[.\d]", text) else set()
    of_mode = {"table2", "table2-leakage", "table4", "fig3", "fig5", "fig6"}
    assert noted == (of_mode if mode == "standard" else set())
    assert published >= ({"table2", "table4", "table5"} if mode == "author" else {"table5"})
    assert ("table2" in published) == (mode == "author")


#: Each number of published.json as it is printed, with its place there.
PRINTED = {
    "table 2": """
        ViViT-B/16: .53 .18 .62 .13 .54 .24 .73 .10
        X-CLIP: .79 .05 .71 .05 .66 .05 .82 .03
        PCBM-DT: .68 .44 .58 .38
        PCBM-LR: .64 .43 .50 .37
        Random (v1): .32 .28
        Random (v2): .54 .55
        All positive (v1): .37 .33
        All positive (v2): .08 .06""",
    "table 5": "X-CLIP LSMDC: .70 .08 .70 .10 .66 .06 .78 .11",
    "table 4": """
        tt0119822: .55 .09
        tt1570728: .59 .05
        tt2267998: .54 .10
        tt0467406: .67 .09
        tt0822832: .55 .07
        tt0110912: .29 .13
        tt1045658: .58 .03
        tt0108160: .51 .06
        tt1454029: .56 .05
        tt1193138: .46 .05
        average: .53""",
    "the text, section 3.4": """
        shares: EN .52 S .16
        concepts_per_clip: HN 1.26 NS 1.71 S 2.6""",
    "appendix 7": "agreement: .42 23 .69",
}


def numbers_in(value):
    """Return the numbers of a JSON value in order, with the level that each is of, if any."""
    if isinstance(value, dict):
        parts = []
        for key, part in value.items():
            parts += [key] * (key in ("EN", "HN", "NS", "S")) + numbers_in(part)
        return parts
    return [value] if isinstance(value, int | float) else []


def test_published_numbers_are_those_of_the_paper():
    shipped = reference_json("published.json")
    places = {
        "table 2": shipped["table2"]["rows"], "table 5": shipped["table5"]["rows"],
        "table 4": shipped["table4"]["rows"] | {"average": shipped["table4"]["average"]},
        "the text, section 3.4": shipped["figure2"],
        "appendix 7": {"agreement": shipped["agreement"]},
    }  # fmt: skip
    for place, text in PRINTED.items():
        printed = {}
        for line in text.strip().splitlines():
            name, _, cells = line.strip().partition(": ")
            printed[name] = [cell if cell.isalpha() else float(cell) for cell in cells.split()]
        assert {name: numbers_in(own) for name, own in places[place].items()} == printed, place
    rest = {key: value for key, value in shipped.items() if not isinstance(value, dict)}
    assert numbers_in(rest) == [], "each number has a place above"


SLIPS = [
    ("table9", ["table9", "did you mean table"]),
    (
        "table2 --store xclip=a --store xclip=b",
        ["--store xclip=b: pass NAME=FOLDER, each name once"],
    ),
    ("table2 --store xclip=nowhere", ["nowhere"]),
    ("table2 --protocol leakfree", ["leakfree", "leak-free"]),
    ("table4 --protocol paper", ["table4: a protocol changes nothing here"]),
    ("fig6 --protocol released", ["fig6: a protocol changes nothing here"]),
    ("table5 --store lsmdc={xclip}", ["{xclip} is a store of xclip"]),
    ("table4 --store clip={clip}", ["clip", "xclip-kinetics, vivit, xclip-lsmdc"]),
    ("table5 --store lsmdc={lsmdc}", ["'S'", "calm, tense"]),
]


def test_user_errors_are_one_line(dataset, tmp_path):
    paths = {"clip": tmp_path / "clip.zarr", "calm": tmp_path / "calm"} | dataset.stores
    second = replace(RECIPE, backbone=RECIPE.backbone | {"name": "clip"})  # in no table
    manifest = of.Manifest.load(dataset.manifest)
    write_store(paths["clip"], manifest, dict.fromkeys(manifest.ids, np.ones(8)), second)
    table = write(tmp_path / "calm.csv", "clip,level", "a-1,calm", "a-2,tense")
    of.Manifest.from_csv(table, {"id": "clip"}, levels=["calm", "tense"]).save(paths["calm"])
    for arguments, facts in SLIPS:
        manifest = paths["calm"] if "calm, tense" in facts else dataset.manifest
        words = arguments.format(**paths).split()
        result = call(dataset, tmp_path / "x", *words, manifest=manifest)
        assert result.exit_code in (1, 2), arguments
        assert all(fact.format(**paths) in result.stderr for fact in facts), result.stderr
        assert "Traceback" not in result.stderr
        assert not (tmp_path / "x").exists(), arguments


def test_a_lost_process_is_one_line(dataset, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "make_run", Mock(side_effect=BrokenProcessPool))
    with pytest.raises(ExperimentError, match="one table or figure at a time"):
        om.reproduce(["table2", "fig2"], dataset.manifest, dataset.stores, tmp_path / "out")


def test_tables_are_escaped_and_rounded():
    interval = Value(-1e-3, low=-1, high=0)
    lines = [
        Line("=1+1 & 50%_", "ours", {"a": Value(0.5, 0.1), "b": interval}),
        Line("theirs", "published", {"a": Value(0.6), "b": Value(None)}),
        Line("clips", "count", {"a": Value(1200), "b": Value(0.0)}),
    ]
    notes = [RunWarning("note", "", "in\ntwo")]
    created = Table(["a", "b"], [Block("@b", "", "f1", lines)], notes, "t", "T")
    assert "\nt,'@b,,f1,'=1+1 & 50%_,ours,a,0.5,0.1," in render.to_csv(created)
    tex = render.to_latex(created)
    assert r"=1+1 \& 50\%\_ & 0.50 (0.10) & 0.00 [-1.00, 0.00] \\" in tex
    assert "% in two\n" in tex
    text = render.to_text(created)
    assert re.search(r"\n=1.1 & 50%_ +0\.50 \(0\.10\) +0\.00 \[-1\.00, 0\.00\]\n", text)
    assert re.search(r"\n +theirs, and ours minus it +0\.60 -0\.10 +-\n", text)
    assert re.search(r"\nclips +1,200 +0\.00\n", text)


@pytest.mark.night
def test_two_workers_write_what_one_process_writes(dataset, tmp_path, monkeypatch):
    tables = []
    for cores in (1, 2):
        monkeypatch.setattr(module, "usable_cores", lambda cores=cores: cores)
        folder = tmp_path / str(cores)
        om.reproduce(["fig5"], dataset.manifest, dataset.stores, folder, protocols=["leak-free"])
        tables.append({path.name: path.read_bytes() for path in folder.glob("*.csv")})
    assert tables[0] == tables[1]
    assert len(tables[0]) == 1
