"""What a model has seen is known again under another id, by file and seconds."""

from __future__ import annotations

import csv
from xml.etree import ElementTree

import numpy as np
import pytest

from obygaze_features.manifests import Item, Items, Manifest
from obygaze_models.experiments.experiment import Experiment
from obygaze_models.experiments.train import train_model
from obygaze_models.inference import SEEN_RENAMED, predict
from obygaze_models.leaks import footage_of, overlapping
from tests.world import write_store


@pytest.fixture(scope="module")
def model(world, tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "sure"
    experiment = Experiment(
        "Sure", world.manifest, world.store, split="ten", positives=("S",),
        train_negatives=("HN",), estimators=("logistic",),
    )  # fmt: skip
    train_model(experiment, path)
    return path


def test_clips_trained_on_are_recognised_under_other_ids(obygaze, world, model, tmp_path):
    chance = np.random.default_rng(4)
    seen = [
        clip
        for clip, level, fold in zip(world.ids, world.levels, world.folds, strict=True)
        if level in ("HN", "S") and fold != 9
    ]
    unseen = next(clip for clip in world.ids if clip not in seen)
    expected = {
        Item(seen[0], media="elsewhere.mp4"): "yes",
        Item("new-1", film="a", media=f"{seen[1]}.mkv", start=1.0, end=2.0): SEEN_RENAMED,
        Item("new-2", film="b", media=f"{seen[1]}.avi"): SEEN_RENAMED,
        Item("new-3", film="a", media=f"{unseen}.mp4", start=1.0, end=2.0): "no",
        Item("new-4", film=seen[0].split("-")[0]): "no",
    }
    store = tmp_path / "renamed.zarr"
    rows = {clip.id: chance.normal(size=8).astype(np.float32) for clip in expected}
    write_store(store, Manifest("renamed", Items.of(list(expected))), rows)
    predictions = predict(model, store)
    assert dict(zip(predictions.ids, predictions.seen, strict=True)) == {
        item.id: csv_file for item, csv_file in expected.items()
    }

    csv_file, table, films = tmp_path / "said.csv", tmp_path / "tables", tmp_path / "films"
    result = obygaze(
        "models", "predict", model, store, "-o", csv_file, "--csv", table, "--elan", films
    )
    assert result.exit_code == 0, result.stderr
    assert f"1 of {len(expected)} clips were used to train the model" in result.stderr
    assert "2 show seconds of files that it was trained on, under other ids\n" in result.stderr
    with csv_file.open(newline="") as lines:
        assert [row["seen_in_training"] for row in csv.DictReader(lines)] == predictions.seen
    assert f",{SEEN_RENAMED}\n" in (table / "b.csv").read_text(encoding="utf-8")
    marks = [
        tier
        for path in films.glob("*.eaf")
        for tier in ElementTree.parse(path).getroot().iter("TIER")
        if tier.attrib["TIER_ID"].endswith("seen in training")
    ]
    assert ["".join(tier.itertext()).strip() for tier in marks] == [SEEN_RENAMED]


def test_against_brute_force():
    chance = np.random.default_rng(5)

    def draw(name: str, count: int) -> Items:
        items = []
        for row in range(count):
            start, length = chance.integers(0, 300), chance.integers(1, 8)
            span = (float(start), float(start + length)) if chance.random() < 0.98 else (None,) * 2
            kind = chance.integers(3)
            media = f"f{chance.integers(8)}.{'mp4' if chance.random() < 0.5 else 'mkv'}"
            film = f"g{chance.integers(8)}" if kind else ""
            items.append(Item(f"{name}{row}", "clip", film, media if kind < 2 else "", "", *span))
        return Items.of(items)

    def names(item: Item) -> str:
        return item.media.split(".")[0] or (item.film if item.start is not None else "")

    def meet(clip: Item, unseen: Item) -> bool:
        if not names(clip) or names(clip) != names(unseen):
            return False
        if clip.start is None or unseen.start is None:
            return True
        return clip.start < unseen.end and unseen.start < clip.end

    known, asked = draw("k", 60), draw("a", 200)
    predictions = overlapping({"footage": footage_of(known, known.ids)}, asked, asked.ids)
    expected = [any(meet(clip, unseen) for unseen in known) for clip in asked]
    assert predictions.tolist() == expected
    assert 0 < sum(expected) < len(expected)
    assert not overlapping({}, asked, asked.ids).any()  # a model of an earlier obygaze
