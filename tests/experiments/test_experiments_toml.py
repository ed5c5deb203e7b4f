"""The file of an experiment: what it says, and its slips, before anything is trained."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

import obygaze_models as om
from obygaze_features.errors import ExperimentError, ObygazeError
from obygaze_features.manifests import Item, Items, Manifest, Split, obygaze_scheme
from tests.kit.files import write
from tests.kit.run import FILMS, LEVELS, SCENES, write_store

FILE = {
    "name": '"Sure against Hard Negatives"', "manifest": '"../manifests/obygaze12"',
    "store": '"/data/xclip.zarr"', "split": '"leak-free"', "positives": '["S"]',
    "train_negatives": '["HN"]',
}  # fmt: skip
NO_LEVELS = {"positives": None, "train_negatives": None, "split": None}


def load(folder, *lines, without=()):
    path = folder / "experiment.toml"
    remaining = [f"{key} = {value}" for key, value in FILE.items() if key not in without]
    path.write_text("\n".join([*remaining, *lines]), encoding="utf-8")
    return om.load_experiment(path)


def names(experiment):
    problems = experiment.problems(obygaze_scheme())
    return [(problem.train.name, [test.name for test in problem.tests]) for problem in problems]


def test_an_experiment_from_a_file(tmp_path):
    experiment = load(tmp_path, 'test_negatives = [["EN"], ["EN", "HN"]]\nseed = 3')
    assert experiment.manifest == tmp_path / "../manifests/obygaze12"
    assert experiment.store.as_posix() == "/data/xclip.zarr"
    assert (experiment.labels, experiment.array, experiment.seed) == (None, "native", 3)
    assert names(experiment) == [("HN vs S", ["EN vs S", "EN+HN vs S"])]
    line = 'test_negatives = ["EN", "HN"]'
    assert names(load(tmp_path, line)) == [("HN vs S", ["EN+HN vs S"])]
    assert names(load(tmp_path)) == [("HN vs S", ["HN vs S"])]
    line = 'estimators = ["mlp", {name = "mlp", as = "narrow", hidden_layer_sizes = [8]}]'
    learners = load(tmp_path, line).learners
    assert list(learners) == ["mlp", "narrow"]
    assert learners["narrow"].options["hidden_layer_sizes"] == [8]
    for lines, trained in {
        'concepts = ["Look", "Clothes"]\nnegatives = "c"': [
            "Look vs HN+S without", "Clothing vs HN+S without",
        ],
        'concepts = "all"': [f"{name} vs EN" for name in obygaze_scheme().visual_concepts],
        'levels = ["EN", "HN", "S"]': ["EN / HN / S"],
    }.items():  # fmt: skip
        assert [name for name, _ in names(load(tmp_path, lines, without=NO_LEVELS))] == trained


LONG = f'estimators = [{{name = "mlp", as = "{"é" * 150}"}}]'
SLIPS = [
    ("sead = 1", ["unknown key 'sead'; did you mean seed?"]),
    ("seed = -1", ["seed must be a whole number from 0 up (got -1)"]),
    ("seed = ?", ["is not valid TOML", "line 7"]),
    ("labels = [1]", ["labels must be the name of a label set", "(got"]),
    ('test_negatives = [["S"]]', ["level S is both positive and negative"]),
    ('test_negatives = [["EN"], ["EN"]]', ["the same test set twice"]),
    ('balance = "wieghts"', ["unknown balance 'wieghts'"]),
    ('protocol = "paper"\nbalance = "none"', ["the protocol paper fixes the training clips"]),
    ('protocol = "official"\ngap = 5', ["fixes the training clips; leave gap out"]),
    ("min_clips = 3", ['add protocol = "leave-film-out"']),
    ('pooling = "median"', ["unknown pooling 'median'; did you mean m"]),
    ('concepts = ["Look"]', ["has positives and concepts; one task at a time"]),
    ('estimators = [{name = "knn", negatives = "b"}]', ["'knn' uses no concepts"]),
    ("estimators = [{hidden = 8}]", ["estimators must be a list of names, or of tables"]),
    ('estimators = [{name = "mlp", threshold = 0.3}]', ["must be 'validation' (got 0.3)"]),
    ('estimators = [{name = "oracle-tree", threshold = "validation"}]', ["validation clips, too"]),
    (LONG, ["take at most 200 bytes"]),
    ('missing = "zero"', ["unknown missing 'zero'", "mean"]),
    ('fusion = "late"', ["one store takes no fusion"]),
    ('concept_stores = {Look = "xclip"}', ["takes no concept_stores"]),
    ('concept_stores = {Look = "herr"}', ["concept_stores: unknown store 'herr'"]),
    ("concept_stores = {Look = 3}", ['such as {Voice = "clap"} (got']),
]


@pytest.mark.parametrize(("line", "facts"), SLIPS)
def test_a_slip_in_a_file_is_one_line(tmp_path, line, facts):
    with pytest.raises(ExperimentError) as caught:
        load(tmp_path, line)
    message = str(caught.value)
    assert all(fact in message for fact in ["experiment.toml", *facts]), message
    assert "\n" not in message


def test_slips_in_keys_and_files_are_named(tmp_path):
    for lines, without, fact in (
        ((), ["positives"], 'positives is missing; add positives = ["S"'),
        (('levels = ["EN", "S"]',), NO_LEVELS, "three or more different ones are meant"),
        (('levels = ["EN", "HN", "S"]', 'protocol = "paper"'), NO_LEVELS, "for two classes"),
        (('levels = ["EN", "HN", "S"]', 'estimators = [{name = "mlp", threshold = "validation"}]'),
         NO_LEVELS, "for two classes, and mlp tells 3 apart"),
        (('concepts = ["Loook"]',), NO_LEVELS, "unknown concept 'Loook'; did you mean Look?"),
    ):  # fmt: skip
        with pytest.raises(ExperimentError) as caught:
            names(load(tmp_path, *lines, without=without))
        assert fact in str(caught.value)
    with pytest.raises(ExperimentError, match="levels go into train_negatives"):
        om.Experiment("x", "m", "s", positives=["chase"], negatives=["quiet"])


def other_clips(manifest, folder):
    second = Manifest("other", Items.of([Item("clip-1"), Item("clip-2"), Item("clip-3")]))
    write_store(folder / "o.zarr", second, dict.fromkeys(second.ids, np.ones(8, np.float32)))
    return {"store": folder / "o.zarr"}


def with_gaps(manifest, folder):
    ten = manifest.split("ten")
    split = Split("gaps", ten.ids, [fold + (fold > 3) for fold in ten.folds])
    manifest.with_parts(splits=[split]).save(folder / "manifest")
    return {"manifest": folder / "manifest", "split": "gaps"}


def without_sure_tests(manifest, folder, folds=10):
    labels, ten = manifest.labels(), manifest.split("ten")
    split = replace(ten, folds=[fold % folds for fold in ten.folds])
    last = [clip for clip, fold in split.fold_of.items() if fold == folds - 1]
    remaining = labels.where(lambda clip: clip not in last or labels.level_of[clip] != "S")
    manifest.with_parts(labels=[remaining], splits=[split]).save(folder / "manifest")
    return {"manifest": folder / "manifest"}


def of_files(files, films=("",), **keys):
    def change(manifest, folder):
        rows = np.arange(len(manifest))
        media = [f"{row * files // len(rows)}.mp4" for row in rows]
        times = {"starts": rows * 2.0, "ends": rows * 2.0 + 2}
        named = [films[row * len(films) // len(rows)] for row in rows]
        items = replace(manifest.items, films=named, media=media, **times)
        replace(manifest, items=items).save(folder / "manifest")
        return {"manifest": folder / "manifest", "split": "", "protocol": None} | keys

    return change


def with_own_levels(manifest, folder):
    rows = (f"{row},{'quiet' if row % 2 else 'chase'},Red" for row in range(20))
    table = write(folder / "clips.csv", "id,level,concepts", *rows)
    Manifest.from_csv(table, levels=["quiet", "chase"]).save(folder / "manifest")
    return {"manifest": folder / "manifest", "split": None, "concepts": ["Red"]} | NO_TASK


EACH = SCENES // len(LEVELS)  # clips of a level in each film
NO_TASK = {"positives": (), "train_negatives": (), "test_negatives": ()}
REFUSED = [
    ({"positives": ("surely",)}, ["Hard Negatives'", "'surely'; did you mean Sure"]),
    ({"array": "cls"}, ["unknown array 'cls'; known are native, frames"]),
    ({"array": "frames"}, ["'frames' has 2 axes a clip", "or a pooling"]),
    ({"pooling": "max"}, ["'native' has one vector a clip: there is nothing"]),
    ({"estimators": ()}, ["estimators is empty; name one, or give --pred"]),
    ({"protocol": "released", "split": None}, ["no split '02_HN_S'", "so take leak-free"]),
    ({"concepts": ("all",)} | NO_TASK, ["'levels' has no concepts"]),
    (other_clips, ["none of the 150 clips of toy", "o.zarr, which is of clips such as clip-1, cl"]),
    (with_gaps, ["goes up to fold 10, and no clip is in fold 4"]),
    (without_sure_tests, ["nothing can be learnt", "--name few --overwrite", "9      5  0"]),
    (partial(without_sure_tests, folds=3), ["no clip of S; label more clips\n"]),
    (of_files(2, groups="media"), ['groups = "media" has 2 files; to train', "takes three"]),
    (of_files(2, groups="media", protocol="leave-film-out"), [
        "takes three files with clips of", "without groups"]),
    (of_files(4, protocol="leave-film-out"), ["no film,", '--by media; groups = "media"']),
    (of_files(4, "ab", protocol="leave-film-out"), ["three films", 'leave out files: groups = "m']),
    (partial(without_sure_tests, folds=2), ["the split 'ten' has 2 folds; to", 'split = ""']),
    (of_files(1, gap=150), ["gap = 150 leaves 2 stretches of files", "a smaller gap"]),
    (of_files(1, gap=100, split="ten"), ["gap = 100 takes", "a smaller gap"]),
    ({"protocol": "leave-film-out", "min_clips": EACH + 1}, [
        f"groups with {EACH + 1} clips of each class, and 0 of {FILMS} have", "min_clips = 1",
        f"tt0   {EACH}  {EACH}"]),
    ({"groups": "serie"}, ["unknown column 'serie'; known are film, media, kind"]),
    (with_own_levels, ['write negatives = "b"']),
]  # fmt: skip


@pytest.mark.parametrize(("change", "facts"), REFUSED)
def test_what_cannot_be_run_leaves_no_folder(world, experiment, tmp_path, change, facts):
    if callable(change):
        change = change(Manifest.load(world.manifest), tmp_path)
    with pytest.raises(ObygazeError) as caught:
        om.run_experiment(replace(experiment, **change), tmp_path / "of/mine/run")
    message = str(caught.value)
    assert all(fact in message for fact in facts), message
    _, *table = message.splitlines()  # of the classes by fold or film, if anything
    assert {*"".join(table[1:2])} <= {"-", " "}
    assert not (tmp_path / "of").exists()
