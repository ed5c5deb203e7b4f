"""The paper's tables and figures, from the authors' files in miniature and drawn features."""

import json
import re
from collections import defaultdict
from concurrent.futures.process import BrokenProcessPool
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import f1_score

import obygaze_features as of
import obygaze_models as om
from obygaze_features.errors import ExperimentError

# Networks train for one step here, which no command offers.
from obygaze_models.estimators.registry import ESTIMATORS

# The settings of a training, of workers and of stores, which no command has.
from obygaze_models.studies.reproduce import context
from obygaze_models.studies.reproduce import reproduce as module
from obygaze_models.studies.reproduce.render import Block, Table
from tests.conftest import run_obygaze
from tests.kit.authors import make_authors, make_dataset
from tests.kit.files import refused
from tests.kit.floats import close
from tests.kit.run import RECIPE, write_rows

#: The training negatives and the test of each column.
COLUMNS = {
    "EN-S/EN-S": ("EN", "EN vs S"),
    "HN-S/EN-S": ("HN", "EN vs S"),
    "EN-S/ENHN-S": ("EN", "EN+HN vs S"),
    "HN-S/ENHN-S": ("HN", "EN+HN vs S"),
}


@pytest.fixture(autouse=True, scope="module")
def few_epochs_in_one_process():
    """Train briefly, because tables are only compared with predictions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "usable_cores", lambda: 1)
        for name in ("mlp", "mlp-author"):
            sparse = {**ESTIMATORS[name].parameters, "max_iter": 1}
            patch.setitem(ESTIMATORS, name, replace(ESTIMATORS[name], parameters=sparse))
        yield


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("authors")
    return make_dataset(folder, make_authors(folder, scale=4), widths=(12, 12, 12))


def lines_of(folder, name):
    """Return the values of each block and score, by (row, kind) and column."""
    table = pd.read_csv(folder / f"{name}.csv")
    blocks = defaultdict(lambda: defaultdict(dict))
    for value in table.to_dict("records"):
        block = blocks[value["block"], value["score"]]
        block[value["row"], value["kind"]][value["column"]] = value
    return blocks


def predictions(run, model):
    table = pd.read_csv(run / "predictions.csv")
    table["label"] = table["label"] == "positive"
    table["called"] = table["probability"] > 0.5
    return table[table["model"] == model]


def weighted_f1(labels, called):
    return f1_score(labels, called, average="weighted", zero_division=0)


MEASURES = {"f1_weighted": weighted_f1, "f1": f1_score}


def mean_score(run, test, metric):
    """Return the mean score of the network's fits, by scikit-learn."""
    rows = predictions(run, "mlp")
    fits = rows[rows["test"] == test].groupby("fit")
    return np.mean([MEASURES[metric](fit["label"], fit["called"]) for _, fit in fits])


def call(dataset, output, *words, code=None, **stores):
    options = ["--manifest", dataset.manifest, "-o", output]  # a later --manifest wins
    for name, path in stores.items():
        options += ["--store", f"{name}={path}"]
    return run_obygaze("reproduce", *options, *words, code=code)


def test_both_protocols_are_in_one_table(dataset, tmp_path):
    """The features are of unknown preprocessing, so nothing published is beside them."""
    store = of.open_store(dataset.stores["vivit"])
    np.save(tmp_path / "max.npy", store.read("max", missing="nan"))
    arrays = {"max": tmp_path / "max.npy"}
    manifest = of.Manifest.load(dataset.manifest)
    unknown = tmp_path / "unknown.zarr"
    of.import_features(arrays, manifest, unknown, ids=store.ids, backbone="vivit")
    out = tmp_path / "out"
    words = ("table2", "--protocol", "released", "--protocol", "leak-free")
    result = call(dataset, out, *words, vivit=unknown, code=0)

    lost_origin = "the origin of the vivit features was not recorded"
    leakage = (out / "table2-leakage.txt").read_text(encoding="utf-8")
    assert lost_origin in result.stderr
    assert lost_origin in leakage
    missing = re.findall("MISSING: .*", result.stderr)
    assert "Pass its store: xclip-kinetics (table2: X-CLIP, native, PCBM-DT" in missing[0]
    assert "the array max. Pass its store: xclip-kinetics (table2: X-CLIP, max)" in missing[1]

    blocks = lines_of(out, "table2-leakage")
    for (_, metric), part in blocks.items():
        released, leak_free, difference = part.values()
        for column, (trained, test) in COLUMNS.items():
            run = out / f"runs/released/vivit-max-{trained}"
            cleaned = out / f"runs/leak-free-released-labels/vivit-max-{trained}"
            means = mean_score(run, test, metric), mean_score(cleaned, test, metric)
            assert (released[column]["mean"], leak_free[column]["mean"]) == close(means)
            assert difference[column]["mean"] == close(means[0] - means[1])
    assert len(blocks) == 2


def copy_store(dataset, slot, path, *, mode="author", arrays=(), **backbone):
    """Copy a store as if it had been extracted, so that its features are not synthetic."""
    store = of.open_store(dataset.stores[slot])
    rows = dict(arrays)
    for name in store.arrays:
        rows[name] = store.read(name)
    specs = []
    for name, values in rows.items():
        shape = values.shape[1:]
        specs.append(replace(RECIPE.arrays[0], name=name, shape=shape, padded=len(shape) == 2))
    own = store.attributes["backbone"] | {"config": {}} | backbone
    recipe = replace(RECIPE, backbone=own, preprocessing={"mode": mode}, arrays=tuple(specs))
    write_rows(path, of.Manifest.load(dataset.manifest), rows, recipe, block_rows=512)
    return path


@pytest.fixture(scope="module")
def table5(dataset, tmp_path_factory):
    """Run table 5 on features of a known backbone; return the output and its blocks."""
    folder = tmp_path_factory.mktemp("table5")
    native = of.open_store(dataset.stores["lsmdc"]).read("native")
    empty = np.full_like(native, np.nan)
    frames = np.stack([native, native - 1, empty], axis=1)
    arrays = {"frames_temporal": frames}
    path = copy_store(dataset, "lsmdc", folder / "known.zarr", mode="standard", arrays=arrays)
    words = ("table5", "--protocol", "paper")
    call(dataset, folder / "out", *words, lsmdc=path, code=0)
    return lines_of(folder / "out", "table5")


def means_of(part, name):
    return [value["mean"] for value in part[name, "ours"].values()]


def test_table_5_pools_as_the_code_and_as_the_text(table5):
    """Its network has one preprocessing, whatever the mode; the highest frame is native here."""
    scored = [part for part in table5.values() if ("X-CLIP LSMDC, native", "ours") in part]
    assert scored
    for part in scored:
        native = means_of(part, "X-CLIP LSMDC, native")
        assert native == means_of(part, "X-CLIP LSMDC, max of frames_temporal")
        assert native != means_of(part, "X-CLIP LSMDC, max")
    ours, published, *_ = next(iter(table5.values())).values()
    for column, value in published.items():
        expected = ours[column]["mean"] - value["mean"]
        assert value["ours_minus_published"] == close(expected)


def test_guesses_use_the_share_of_sure_clips(dataset, table5):
    """scikit-learn scores the guess that calls every clip positive."""
    labels = of.Manifest.load(dataset.manifest).labels()
    blocks = {
        metric: part for (title, metric), part in table5.items() if "dataset's share" in title
    }
    assert list(blocks) == ["f1_weighted", "f1"]
    for column, (_, test) in COLUMNS.items():
        tested = re.split(r" vs |[+]", test)
        sure = np.array([level == "S" for level in labels.levels if level in tested])
        for metric, part in blocks.items():
            lines = {name: line[column] for (name, _), line in part.items() if column in line}
            assert lines["Share of positives"]["mean"] == close(sure.mean())
            all_positive = MEASURES[metric](sure, np.ones(len(sure)))
            assert lines["All positive"]["mean"] == close(all_positive)


@pytest.fixture(scope="module")
def films(dataset, tmp_path_factory):
    folder = tmp_path_factory.mktemp("films") / "out"
    names = ["table4", "fig2", "fig5", "fig6"]
    om.reproduce(names, dataset.manifest, dataset.stores, folder, protocols=["released"])
    return folder


@pytest.fixture(scope="module")
def left_out(films):
    """The network's predictions of films that were left out, in each of its fits."""
    rows = predictions(films / "runs/leave-film-out/xclip-native-HN", "mlp")
    return rows.assign(film=rows["id"].str.split("-").str[0])


@pytest.mark.night
def test_table_4_scores_each_film(films, left_out):
    for suffix in ("svg", "pdf"):
        assert {path.stem for path in films.glob(f"*.{suffix}")} == {"fig2", "fig6"}
    [lines] = lines_of(films, "table4").values()
    ours = [line for (_, kind), line in lines.items() if kind == "ours"]
    *by_film, average = ours
    means = []
    for line, (_, rows) in zip(by_film, left_out.groupby("film"), strict=True):
        fits = [fit for _, fit in rows.groupby("fit")]
        scores = [weighted_f1(fit["label"], fit["called"]) for fit in fits]
        means.append(np.mean(scores))
        ours = line["weighted"]
        assert (ours["mean"], ours["std"]) == close((means[-1], np.std(scores)))
        assert line["clips"]["mean"] == len(fits[0])
    assert average["weighted"]["mean"] == close(np.mean(means))
    # Features are synthetic, and the paper's average is over films that are not tested here.
    assert list(lines.values())[-1] == average
    assert not pd.read_csv(films / "table4.csv")["ours_minus_published"].any()


@pytest.mark.night
def test_figure_6_counts_the_errors_of_the_mean_of_fits(films, left_out):
    [lines] = lines_of(films, "fig6").values()
    network = next(iter(lines.values()))
    by_clip = left_out.groupby("id")[["label", "probability"]].mean()
    wrong = (by_clip["probability"] > 0.5) != (by_clip["label"] > 0.5)
    assert network["wrong"]["mean"] == wrong.sum()
    assert network["clips"]["mean"] == len(wrong)
    assert {"Look", "EN", "HN", "S"} <= set(network)


def test_missing_stores_are_named(dataset, tmp_path):
    result = call(dataset, tmp_path / "none", "all", code=3)
    missing = re.findall("MISSING: .*", result.stderr)
    needing = [name for name in module.TARGETS if f"{name}: " in "".join(missing)]
    assert needing == [name for name in module.TARGETS if name != "fig2"]
    for name in module.TARGETS:
        text = (tmp_path / f"none/{name}.txt").read_text(encoding="utf-8")
        assert ("MISSING: " in text) == (name in needing)


def load(dataset, **stores):
    names = {name.replace("_", "-"): path for name, path in stores.items()}
    return context.ReproductionContext(dataset.manifest, names)


def test_stores_may_be_named_after_their_backbone(dataset, tmp_path):
    older = dataset.stores["xclip"]
    own = copy_store(dataset, "xclip", tmp_path / "own.zarr", name="xclip-kinetics", family="xclip")
    for path in (own, older):
        for loaded in (load(dataset, xclip=path), load(dataset, xclip_kinetics=path)):
            assert [*loaded.stores] == ["xclip"]
            assert loaded.is_published("xclip")
    for stores in ({"xclip": older, "xclip_kinetics": own}, {"vivit": own}):
        with pytest.raises(ExperimentError, match=r"own.zarr is a store of xclip-kinetics\."):
            load(dataset, **stores)


@pytest.mark.parametrize(
    ("name", "changes", "differences"),
    [
        ("xclip", {}, []),
        ("xclip", {"mode": "standard"}, ["mode"]),
        ("vivit", {"mode": "unknown"}, ["mode"]),
        ("xclip", {"config": {"vision_config": {"num_frames": 8}}}, ["checkpoint"]),
        ("lsmdc", {"mode": "standard"}, []),
    ],
)
def test_published_numbers_need_the_papers_features(dataset, tmp_path, name, changes, differences):
    loaded = load(dataset, **{name: copy_store(dataset, name, tmp_path / "own.zarr", **changes)})
    assert loaded.differences(name) == differences
    assert loaded.is_published(name) == (not differences)
    loaded.has_papers_clips = False
    assert not loaded.is_published(name)


@pytest.mark.parametrize("setting", context.SETTINGS)
def test_clips_made_easy_are_noted_beside_all_clips(dataset, setting):
    loaded = load(dataset)
    block = Block(setting.title, setting.protocol, "f1", [])
    table = Table(blocks=[block], name="fig3")
    notes = module._notes(table, loaded, context.Needs(), {})
    is_noted = "count as Easy Negative" in str(notes)
    assert is_noted == (setting.labels is None)


@pytest.mark.night
@pytest.mark.parametrize(
    ("mode", "published"),
    [("author", {"table2", "table4", "table5"}), ("standard", {"table5"})],
)
def test_all_is_made_from_stores_of_both_modes(dataset, tmp_path, mode, published):
    stores = {}
    for slot in dataset.stores:
        config = {"synthetic": "made up"}
        path = tmp_path / f"{slot}.zarr"
        stores[slot] = copy_store(dataset, slot, path, mode=mode, config=config)
    done = om.reproduce("all", dataset.manifest, stores, tmp_path / "out")
    assert (done.missing, done.empty) == ({}, [])
    texts = {path.stem: path.read_text(encoding="utf-8") for path in done.folder.glob("*.txt")}
    noted = {name for name, text in texts.items() if "squashed to 224 x 224" in text}
    of_mode = {"table2", "table2-leakage", "table4", "fig3", "fig5", "fig6"}
    assert noted == (of_mode if mode == "standard" else set())
    shown = {name for name, text in texts.items() if re.search(r"\n +published +[.\d]", text)}
    assert shown & {"table2", "table4", "table5"} == published


#: The means of the paper's tables as printed, each with its deviation if it has one.
PRINTED = """
ViViT-B/16: .53 .18 .62 .13 .54 .24 .73 .10
X-CLIP: .79 .05 .71 .05 .66 .05 .82 .03
PCBM-DT: .68 .44 .58 .38
PCBM-LR: .64 .43 .50 .37
Random (v1): .32 .28
Random (v2): .54 .55
All positive (v1): .37 .33
All positive (v2): .08 .06
X-CLIP LSMDC: .70 .08 .70 .10 .66 .06 .78 .11
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
average: .53
"""


def test_published_numbers_are_those_of_the_paper():
    shipped = json.loads(Path("manifests/published.json").read_text())
    rows = dict(shipped["table4"]["rows"])
    rows["average"] = shipped["table4"]["average"]
    for table in ("table2", "table5"):
        rows |= shipped[table]["rows"]
    printed = dict(line.split(": ") for line in PRINTED.strip().splitlines())
    assert rows.keys() == printed.keys()
    for name, row in rows.items():
        numbers = re.findall(r'"(?:mean|std)": ([-.\d]+)', json.dumps(row))
        assert [float(number) for number in numbers] == [
            float(cell) for cell in printed[name].split()
        ]
    assert shipped["figure2"] == {
        "shares": {"EN": 0.52, "S": 0.16},
        "concepts_per_clip": {"HN": 1.26, "NS": 1.71, "S": 2.6},
    }


SLIPS = [
    ("table9", "did you mean table"),
    ("table2 --protocol leakfree", "leak-free"),
    ("table4 --protocol paper", "table4: protocols apply only to table2"),
    ("table5 --store lsmdc={xclip}", "xclip.zarr is a store of xclip"),
]


@pytest.mark.parametrize(("words", "fact"), SLIPS)
def test_user_errors_are_one_line(dataset, tmp_path, words, fact):
    result = call(dataset, tmp_path / "x", *words.format(**dataset.stores).split())
    refused(result, fact)
    assert not (tmp_path / "x").exists()


def test_a_lost_process_is_one_line(dataset, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "make_run", Mock(side_effect=BrokenProcessPool))
    with pytest.raises(ExperimentError, match="one table or figure at a time"):
        om.reproduce(["table2", "fig2"], dataset.manifest, dataset.stores, tmp_path / "out")


def test_a_table_is_rounded_and_no_formula(tmp_path):
    levels = ["=low & high", "tense"]
    (tmp_path / "a.csv").write_text("clip,level,concepts\na,=low & high,\nb,tense,@b\nc,tense,\n")
    manifest = of.Manifest.from_csv(tmp_path / "a.csv", {"id": "clip"}, levels=levels)
    manifest.save(tmp_path / "own")
    done = om.reproduce(["fig2", "fig3"], tmp_path / "own", {}, tmp_path / "out")
    assert "the authors' splits" in next(iter(done.missing))
    folder = done.folder
    assert "fig2,Levels,,share,share of clips,ours,'=low & high,0.333" in (
        folder / "fig2.csv"
    ).read_text(encoding="utf-8")
    text = (folder / "fig2.txt").read_text(encoding="utf-8")
    assert re.search(r"\n +=low & high +tense\n", text)
    assert re.search(r"\nclips +1 +2\n", text)
    assert re.search(r"\nshare of clips +0[.]33 +0[.]67\n", text)
    assert re.search(r"\n@b +0[.]00 +0[.]50\n", text)
