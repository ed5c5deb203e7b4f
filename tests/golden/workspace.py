"""The golden commands, which are all that have ``--json``, and a folder in which they run. It is a
copy of ``data/`` with clips, images and models. Each command can run alone; those that change
something write to their own output."""

import contextlib
import json
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from click.testing import Result
from PIL import Image

COMMANDS = {
    "manifests-show": "manifests show manifest --by-film",
    "manifests-audit": "manifests audit manifest",
    "manifests-check": "manifests check manifest",
    "manifests-check-videos": "manifests check eight --videos films",
    "annotations-show": "annotations show timelines",
    "annotations-project": "annotations project timelines --grid 60 -o out/projected",
    "annotations-merge": "annotations merge projected --name again",
    "annotations-agreement": "annotations agreement projected",
    "features-backbones": "features backbones",
    "features-extract-plan": "features extract clips --videos films --backbone tiny-xclip "
    "-o out/plan --dry-run",
    "features-extract": "features extract clips --videos films --backbone tiny-xclip "
    "--device cpu -o out/extracted",
    "features-thumbnails": "features thumbnails clips --videos films -o out/thumbnails",
    "features-saliency": "features saliency photos --images images --backbone tiny-clip "
    '--text "a woman" --device cpu -o out/saliency',
    "features-caption-scores": "features caption-scores captions.csv --device cpu "
    "--language-model ./gpt2 --sentence-encoder ./encoder -o out/scored.csv",
    "stores-info-open": "stores info open.zarr",
    "stores-info-final": "stores info final.zarr",
    "stores-info-packed": "stores info packed.zip",
    "stores-verify-open": "stores verify open.zarr",
    "stores-verify-final": "stores verify final.zarr",
    "stores-diff": "stores diff open.zarr final.zarr",
    "stores-finalise": "stores finalise to-finalise.zarr --allow-incomplete",
    "stores-repair": "stores repair to-repair.zarr",
    "stores-merge": "stores merge open.zarr final.zarr -o out/merged.zarr",
    "stores-subset": "stores subset final.zarr --film tt0000002 -o out/subset.zarr",
    "stores-push-zip": "stores push final.zarr out/packed.zip",
    "stores-pull": "stores pull packed.zip -o out/pulled.zarr",
    "stores-export-hdf5": "stores export final.zarr -o out/final.h5",
    "stores-import-npy": "stores import features --manifest eight -o out/imported.zarr "
    "--backbone vivit",
    "stores-import-pth": "stores import tensors --manifest eight -o out/tensors.zarr "
    "--backbone vivit",
    "stores-import-hdf5": "stores import theirs.h5 --manifest eight -o out/hdf5.zarr",
    "models-list": "models list",
    "models-list-folder": "models list models",
    "models-compare": "models compare run --model mlp --model pcbm-tree",
    "models-run": "models run golden.toml -o out/run",
    "models-train": "models train golden.toml --estimator pcbm-tree -o out/tree",
    "models-predict": "models predict models/mlp xclip.zarr --ids tt0000001-001,tt0000001-003",
    "models-evaluate": "models evaluate models/pcbm-tree xclip.zarr manifest --labels raw",
    "models-explain-mlp": "models explain models/mlp tt0000001-003 --store xclip.zarr",
    "models-explain-tree": "models explain models/pcbm-tree tt0000001-003 --store xclip.zarr",
    "models-score-run": "mediaeval score-run said.csv accede --labels valence",
    "bias-eat": "bias eat words.json --store words.zarr",
    "bias-captions": "bias captions emotions.csv --minimum 0",
    "bias-ratings": "bias ratings ratings.csv",
    "bias-gender-score": "bias gender-score scores.csv",
    "reproduce-table2": "reproduce table2 --manifest manifest --store xclip=xclip.zarr "
    "--protocol released -o out/table2",
    "reproduce-fig3": "reproduce fig3 --manifest manifest --store xclip=xclip.zarr "
    "--protocol released --protocol leak-free -o out/fig3",
}
#: Exit codes that are not 0, where something differs or is missing.
PARTLY = ("manifests-check-videos", "stores-import-npy", "stores-import-pth", "stores-import-hdf5")
CODES = {"stores-diff": 1, **dict.fromkeys(PARTLY, 3)}

DATA = Path(__file__).parent / "data"
EXPECTED = Path(__file__).parent / "expected"
PRINTED = "models-run.json"


def copy_data(folder: Path) -> Path:
    shutil.copytree(DATA, folder)
    # Git keeps no empty folders, and a checkout may be read-only.
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder


def draw_photos(folder: Path) -> None:
    (folder / "images").mkdir()
    chance = np.random.default_rng(5)
    for name in ("one", "two"):
        pixels = chance.integers(0, 256, (48, 64, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / "images" / f"{name}.png")
    (folder / "images.csv").write_text("id,kind,media\none,image,one.png\ntwo,image,two.png\n")


def make_workspace(folder: Path, obygaze: Callable[..., Result]) -> Path:
    from tests.kit.clips import write_battery
    from tests.kit.models import write_checkpoint, write_gpt2, write_sentence_encoder

    copy_data(folder)
    for name, source in (("finalise", "open"), ("repair", "open")):
        shutil.copytree(folder / f"{source}.zarr", folder / f"to-{name}.zarr")
    (folder / "out").mkdir()
    shutil.rmtree(folder / "run")  # it is of an earlier format
    printed = run_command("models-run", folder, obygaze)
    (folder / PRINTED).write_text(json.dumps(printed))
    shutil.copytree(folder / "out/run", folder / "run")

    def run(command: str) -> None:
        obygaze(*(word.replace("@", f"{folder}/") for word in command.split()), code=0)

    run("features demo @made --count 1 --scenes 2 --seconds 1")
    (folder / "made/videos").rename(folder / "films")
    run("manifests import csv @made/annotations.csv -o @clips")
    write_battery(
        folder / "words.json",
        x=["woman", "girl", "lady"],
        y=["man", "boy", "gentleman"],
        a=["love", "peace"],
        b=["hatred", "filth"],
    )
    draw_photos(folder)
    run("manifests import csv @images.csv -o @photos")
    run("annotations export @timelines -o @elan")
    run("stores export @final.zarr -o @theirs.h5")
    for path in (folder / "features").rglob("*.npy"):
        tensor = folder / "tensors" / path.relative_to(folder / "features").with_suffix(".pth")
        tensor.parent.mkdir(parents=True, exist_ok=True)
        torch.save(torch.from_numpy(np.load(path)), tensor)
    for name, write in (("gpt2", write_gpt2), ("encoder", write_sentence_encoder)):
        (folder / name).mkdir()
        write(folder / name, seed=3)
    write_checkpoint("tiny-clip", folder / "tiny-clip")
    return folder


def run_command(name: str, folder: Path, obygaze: Callable[..., Result]) -> Any:
    if name == "models-run" and (folder / PRINTED).exists():  # once is enough
        return json.loads((folder / PRINTED).read_text())
    with contextlib.chdir(folder):
        result = obygaze(*shlex.split(COMMANDS[name]), "--json")
    assert result.exit_code == CODES.get(name, 0), f"{name}: {result.exit_code}\n{result.output}"
    return json.loads(result.stdout)
