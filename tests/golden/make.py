"""How the golden files were made, by commit f9e703d: ``python -m tests.golden.make``.

Kept as a record. It refuses to run where the golden files exist, and needs not work with later
code: what it imports is the inside of that commit.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
DATA, EXPECTED = HERE / "data", HERE / "expected"
FILMS = [f"tt000000{number}" for number in range(1, 9)]
#: The level of each of a film's 20 clips.
LEVELS = ["EN", "HN", "S", "EN", "S", "HN", "EN", "NS", "S", "HN"] * 2
VISUAL = ("Look", "Body", "Clothing")
EXPERIMENT = """\
name = "Golden: Sure against the negatives"
manifest = "manifest"
store = "xclip.zarr"
split = "leak-free"
positives = ["S"]
train_negatives = ["EN", "HN"]
test_negatives = [["EN"], ["EN", "HN"]]
estimators = ["mlp", "svm", {name = "pcbm-tree", negatives = "b"}, "film-prior"]
"""
CONCEPTS = """\
name = "Golden: concepts"
manifest = "manifest"
store = "xclip.zarr"
split = "leak-free"
concepts = ["Look", "Body"]
negatives = "b"
estimators = ["svm"]
"""
SEGMENTS = """\
film,annotator,start,end,level,concepts,comment
tt0000001,ann,85,150,Hard Neg,Clothes,
tt0000001,ann,150,215,Sure,Body,"the second, long"
tt0000001,ann,240,262,Not Sure,Look,
tt0000001,ann,262,300,Not Sure,Posture,
tt0000001,bea,0,15,Sure,Look,
tt0000001,bea,110,130,Sure,Look,
tt0000001,bea,119,190,Not Sure,Activities,
tt0000001,bea,200,300,Not Sure,Look|Clothes,
tt0000001,bea,390,420,Hard Neg,Posture,
tt0000002,ann,10,70,Sure,Look|Body,
tt0000002,bea,5,61,Sure,Body,
"""
FILMS_TABLE = "film,title,end\ntt0000001,First,0:07:00\ntt0000002,Second,120\n"
MOBYGAZE = """\
;clip_index;movie_id;annotator;label;concepts;comment;start_frame;end_frame;imdb_key;movie_title;framerate;subtitle;start_clip;end_clip
0;id_0;1;annotator1;Easy Negative;[];['credits'];0;249;tt0097576;Made up;25;;0;10
1;id_1;1;annotator1;Sure;['Look', 'Body'];[];250;499;tt0097576;Made up;25;;10;20
2;id_2;1;annotator2;Hard Negative;['Clothes'];[];300;449;tt0097576;Made up;25;;12;18
"""
EMOTIONS = """\
image_id,condition,emotion,intensity,caption
1,O,angry,1,a woman with a frown and an angry look
2,O,angry,2,a serious woman sitting on a chair
3,NO,angry,1,an angry woman is frowning
4,NO,sad,1,a sad woman is crying
5,O,sad,2,a woman in a red dress
6,NO,happy,1,a happy woman with a smile
7,O,happy,1,a woman smiling
8,NO,happy,2,"two women, smiling"
"""
RATINGS = "image_id,group,ann,ben,cnn\n" + "".join(
    f"p{row},{'O' if row % 3 else 'NO'},{row % 2},{int(row % 4 > 0)},"
    f"{'porn' if row % 2 else 'neutral'}\n"
    for row in range(12)
)
SCORES = """\
id,caption,object,confidence,group,probability,similarity
a,a man riding a motorcycle,motor scooter,.2183,man,0.1276,0.5452
b,a woman on a sofa,couch,.9,woman,0.2,0.4
c,a man on a sofa,couch,.7,man,0.3,0.1
d,a woman riding a motorcycle,motor scooter,.5,woman,0.1125,0.5037
"""


def made_manifest() -> Any:
    """160 made-up clips under the paper's name, with its label sets, its splits and its runs."""
    from obygaze_features.manifests.runs import released_runs

    from obygaze_features.manifests import (
        Item,
        Items,
        LabelScheme,
        LabelSet,
        Manifest,
        Split,
        obygaze_scheme,
    )
    from obygaze_features.manifests.splits import stratified

    chance = np.random.default_rng(5)
    ids = [f"{film}-{scene:03}" for film in FILMS for scene in range(1, 21)]
    base_scheme = obygaze_scheme()
    # Three concepts that can be seen, so that the reproduction is quick.
    scheme = LabelScheme(
        base_scheme.name,
        base_scheme.levels,
        tuple(replace(one, visual=one.name in VISUAL) for one in base_scheme.concepts),
    )
    levels = LEVELS * len(FILMS)
    # Clips 19 of each film have no file, as some of the authors' have none.
    items = Items.of(
        [Item(one, film=one[:9], media="" if one.endswith("019") else f"{one}.mp4") for one in ids],
        {"synthetic": ["made-up numbers"] * len(ids)},
    )
    share = {"EN": 0.0, "HN": 0.3, "NS": 0.4, "S": 0.6}
    concepts = [
        scheme.in_order(name for name in scheme.visual_concepts if chance.random() < share[level])
        for level in levels
    ]
    keep = [row for row in range(len(ids)) if row % 20 != 17]
    labels = [
        LabelSet("paper", ids, levels, concepts),
        LabelSet(
            "raw",
            [ids[row] for row in keep],
            [levels[row] for row in keep],
            [concepts[row] for row in keep],
        ),
    ]
    splits = []
    for name, classes in {
        "02_EN_S": {"EN": "EN", "S": "S"},
        "02_HN_S": {"HN": "HN", "S": "S"},
        "02_ENHN_S": {"EN": "EN_HN", "HN": "EN_HN", "S": "S"},
        "02_EN_HN_S": {"EN": "EN", "HN": "HN", "S": "S"},
    }.items():
        rows = [row for level in classes for row in keep if levels[row] == level]
        splits.append(
            Split(
                name,
                [ids[row] for row in rows],
                [number % 10 for number in range(len(rows))],
                [classes[levels[row]] for row in rows],
                {"method": "made up"},
            )
        )
    media = {item.id for item in items if item.media}
    runs = [released_runs(split, media) for split in splits[:2]]
    splits.append(stratified("leak-free", items, labels[0], folds=4))
    return Manifest(
        name="obygaze12",
        items=items,
        scheme=scheme,
        source="made up for tests; nothing was filmed or annotated",
        licence="CC0-1.0",
        default_labels="paper",
    ).with_parts(labels=labels, splits=splits, runs=runs)


def made_features(manifest: Any, width: int, seed: int) -> np.ndarray:
    """Each visual concept adds its own direction to the noise, and Sure one more."""
    labels = manifest.labels("paper")
    visible = np.array(
        [
            [*(name in of for name in manifest.scheme.visual_concepts), level == "S"]
            for level, of in zip(labels.levels, labels.concepts, strict=True)
        ]
    )
    chance = np.random.default_rng(seed)
    features = chance.normal(size=(len(visible), width))
    features += 0.7 * visible @ chance.normal(size=(visible.shape[1], width))
    return features.astype(np.float32)


def recipe(name: str, backbone: str, arrays: dict[str, tuple[tuple[int, ...], str]]) -> Any:
    from obygaze_features.store import ArraySpec, Recipe

    return Recipe(
        name=name,
        backbone={
            "name": backbone,
            "revision": "1",
            "weights_sha256": "ab" * 32,
            "config": {"synthetic": "made-up numbers"},
        },
        preprocessing={"mode": "standard", "crop": [8, 8]},
        precision="float32",
        arrays=tuple(
            ArraySpec(one, shape, dtype, f"made-up {one}", padded=one == "frame_index")
            for one, (shape, dtype) in arrays.items()
        ),
    )


def make_store(
    path: Path, manifest: Any, store_recipe: Any, values: dict[str, np.ndarray], **options: Any
):
    """Write all blocks but those in `todo`; the rows in `failed` are broken."""
    from obygaze_features.store import Done, Failed, Status, StoreWriter

    failed, todo = options.pop("failed", ()), options.pop("todo", ())
    writer = StoreWriter.create(path, manifest, store_recipe, **options)
    for block in writer.missing_blocks():
        if block not in todo:
            rows = [
                Failed(Status.UNREADABLE, "not a video", f"{row:064x}")
                if row in failed
                else Done({name: of[row] for name, of in values.items()}, f"{row:064x}")
                for row in writer.rows_of(block)
            ]
            writer.write_block(block, rows)
    return path


def make_large_store(manifest: Any) -> None:
    """The features that models learn from, and that tables are reproduced with."""
    from obygaze_features.store import finalise

    store_recipe = recipe("xclip", "xclip", {"native": ((12,), "float32")})
    values = {"native": made_features(manifest, 12, seed=1)}
    finalise(make_store(DATA / "xclip.zarr", manifest, store_recipe, values, block_rows=80))


def make_small_stores() -> None:
    """Eight clips in blocks of three: a store that is open, one that is final, and an archive."""
    from obygaze_features.manifests import Item, Items, LabelSet, Manifest, obygaze_scheme
    from obygaze_features.store import finalise
    from obygaze_features.store.pack import pack

    ids = [f"{film}-{scene:03}" for film in FILMS[:2] for scene in range(1, 5)]
    items = [
        Item(one, film=one[:9], media=one[:9], start=10.0 * row, end=10.0 * row + 8)
        for row, one in enumerate(ids)
    ]
    manifest = Manifest(
        "eight",
        Items.of(items, {"synthetic": ["made-up numbers"] * 8, "place": ["Zürich", ""] * 4}),
        scheme=obygaze_scheme(),
        source="made up for tests",
        licence="CC0-1.0",
    ).with_parts(
        labels=[LabelSet("annotations", ids, ["EN", "S", "HN", "NS"] * 2, [(), ("Look",)] * 4)]
    )
    manifest.save(DATA / "eight")
    chance = np.random.default_rng(9)
    frame_index = np.arange(40, dtype=np.int32).reshape(8, 5)
    frame_index[3, 3:] = -1
    values = {
        "native": chance.normal(size=(8, 4)).astype(np.float32),
        "frames": chance.normal(size=(8, 5, 3)).astype(np.float16),
        "frame_index": frame_index,
    }
    arrays = {name: (of.shape[1:], str(of.dtype)) for name, of in values.items()}
    options = {
        "block_rows": 3,
        "probe": {name: of[0] + 1 for name, of in values.items() if name != "frame_index"},
        "failed": (4,),
    }
    store_recipe = recipe("eight", "xclip", arrays)
    make_store(DATA / "open.zarr", manifest, store_recipe, values, todo=(2,), **options)
    make_store(DATA / "final.zarr", manifest, store_recipe, values, **options)
    finalise(DATA / "final.zarr")
    pack(DATA / "final.zarr", DATA / "packed.zip")
    plain = {
        "ids": ids,
        "failures": {ids[4]: "not a video"},
        "arrays": {name: of.astype(float).tolist() for name, of in values.items()},
    }
    EXPECTED.mkdir(exist_ok=True)
    (EXPECTED / "eight.json").write_text(json.dumps(plain, indent=1) + "\n")


def make_inputs() -> None:
    """Tables that commands are given."""
    from obygaze_features.manifests import Item, Items, Manifest

    texts = {
        "golden.toml": EXPERIMENT,
        "concepts.toml": CONCEPTS,
        "segments.csv": SEGMENTS,
        "films.csv": FILMS_TABLE,
        "mobygaze.csv": MOBYGAZE,
        "emotions.csv": EMOTIONS,
        "ratings.csv": RATINGS,
        "scores.csv": SCORES,
        "said.csv": "id,said\nACCEDE00002,positive\nACCEDE00004,negative\nACCEDE00006,neutral\n",
        "prompts.csv": "set,stimulus\nwomen,woman\nwomen,girl\nmen,man\nmen,boy\n",
    }
    lines = SCORES.splitlines()
    texts["captions.csv"] = "\n".join(line.rsplit(",", 2)[0] for line in lines) + "\n"
    for name, text in texts.items():
        (DATA / name).write_text(text)
    accede = DATA / "accede-source"
    accede.mkdir()
    rows = range(1, 10)
    for name, column, value in (
        ("sets", "set", lambda row: row % 3),
        ("violence", "violenceClass", lambda row: int(row % 4 == 0)),
        ("affect", "valenceClass\tarousalClass", lambda row: f"{row % 3 - 1}\t{(row + 1) % 3 - 1}"),
    ):
        body = "".join(f"{row}\tACCEDE{row:05}.mp4\t{value(row)}\n" for row in rows)
        (accede / f"MEDIAEVAL{name}.txt").write_text(f"id\tname\t{column}\n{body}")
    chance = np.random.default_rng(4)
    words = [
        ("women", "woman"),
        ("women", "girl"),
        ("women", "lady"),
        ("men", "man"),
        ("men", "boy"),
        ("men", "gentleman"),
        ("a", "love"),
        ("a", "peace"),
        ("b", "hatred"),
        ("b", "filth"),
    ]
    items = [Item(word, kind="text", text=word) for _, word in words]
    manifest = Manifest("words", Items.of(items, {"set": [of for of, _ in words]}))
    values = {"native": chance.normal(size=(len(words), 6)).astype(np.float32)}
    store_recipe = recipe("words", "clip-vit-base-patch32", {"native": ((6,), "float32")})
    make_store(DATA / "words.zarr", manifest, store_recipe, values)
    features = DATA / "features"
    rng = np.random.default_rng(11)
    for scene in (1, 2, 3):
        (features / FILMS[0]).mkdir(parents=True, exist_ok=True)
        np.save(
            features / FILMS[0] / f"{FILMS[0]}-00{scene}.npy", rng.normal(size=4).astype(np.float32)
        )


def main() -> None:
    if DATA.exists() or EXPECTED.exists():
        sys.exit(f"{DATA} or {EXPECTED} exists: golden files are made once, and never again")
    # Nothing of the machine goes into the files.
    platform.node = lambda: "golden"
    platform.platform = lambda *_, **__: "Linux"
    from click.testing import CliRunner

    from cli import main as command_line

    def obygaze(*arguments: str) -> None:
        result = CliRunner().invoke(command_line, arguments)
        assert result.exit_code in (0, 3), (arguments, result.output)

    DATA.mkdir()
    manifest = made_manifest()
    manifest.save(DATA / "manifest")
    make_large_store(manifest)
    make_small_stores()
    make_inputs()
    # A run names its manifest and store by their full paths: made where no user's folder shows.
    folder = Path("/golden")
    shutil.copytree(DATA, folder)
    os.chdir(folder)
    obygaze("models", "run", "golden.toml", "-o", "run")
    obygaze("models", "run", "concepts.toml", "-o", "concepts-run")
    for name in ("mlp", "svm", "pcbm-tree"):
        obygaze("models", "train", "golden.toml", "--estimator", name, "-o", f"models/{name}")
    obygaze("models", "train", "concepts.toml", "-o", "models/concept-vector")
    obygaze(
        "annotations", "import", "csv", "segments.csv", "--films", "films.csv", "-o", "timelines"
    )
    obygaze("annotations", "project", "timelines", "--grid", "60", "-o", "projected")
    obygaze("annotations", "merge", "projected", "--name", "merged")
    obygaze("manifests", "import", "accede", "accede-source", "-o", "accede")
    for name in ("run", "models", "timelines", "projected", "accede"):
        shutil.copytree(folder / name, DATA / name)
    os.chdir(HERE)
    make_expected(obygaze_json=lambda *args: CliRunner().invoke(command_line, [*map(str, args)]))
    shutil.rmtree(folder)


def make_expected(obygaze_json: Any) -> None:
    """What the commands print, and scores and predictions in a plain form."""
    from tests.golden.commands import COMMANDS
    from tests.golden.workspace import make_workspace, run_command

    folder = make_workspace(Path("/golden/place"), obygaze_json)
    (EXPECTED / "json").mkdir()
    for name in COMMANDS:
        text = json.dumps(run_command(name, folder, obygaze_json), indent=1, ensure_ascii=False)
        (EXPECTED / "json" / f"{name}.json").write_text(text + "\n")
    for name in ("table2", "fig3"):
        shutil.copyfile(folder / "out" / name / f"{name}.txt", EXPECTED / f"{name}.txt")
    shutil.copyfile(DATA / "run" / "predictions.csv", EXPECTED / "predictions.csv")
    record = json.loads((DATA / "run" / "run.json").read_text())
    scores = [
        {"model": one["model"], "test": one["test"], "mean": one["mean"], "std": one["std"]}
        for one in record["scores"]
    ]
    (EXPECTED / "scores.json").write_text(json.dumps(scores, indent=1) + "\n")
    for model in sorted(path.name for path in (DATA / "models").iterdir()):
        result = obygaze_json(
            "models", "predict", DATA / "models" / model, DATA / "xclip.zarr", "-o",
            EXPECTED / f"predictions-{model}.csv",
        )  # fmt: skip
        assert result.exit_code == 0, result.output


if __name__ == "__main__":
    main()
