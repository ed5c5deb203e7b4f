"""Predictions film by film: for ELAN, read back by another program, and for spreadsheets."""

from __future__ import annotations

import csv
import io
import itertools
import re
from datetime import datetime
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from pympi.Elan import Eaf

from obygaze_features.errors import ExperimentError
from obygaze_features.manifests import Item, Items, Manifest
from obygaze_features.store import open_store
from obygaze_models.experiments.experiment import Experiment
from obygaze_models.experiments.train import train_model
from obygaze_models.exports import elan_files, film_tables
from obygaze_models.inference import UNSURE, predict
from tests.world import write_store

ITEMS = [
    Item("one-1", film="Été", media="Été à Paris.mp4", start=0.0, end=10.0004),
    Item("one-3", film="Été", media="Été à Paris.mp4", start=20.0, end=30.5),
    Item("one-2", film="Été", media="Été à Paris.mp4", start=10.0004, end=20.0),
    Item("one-over", film="Été", media="Été à Paris.mp4", start=15.0, end=25.0),
    Item("one-instant", film="Été", media="Été à Paris.mp4", start=31.0, end=31.0001),
    Item("two-1", film="été", media="=cmd|'calc'!A0.avi", start=1.5, end=2.25),
    Item("reel-1", film="reels", media="reel.1.mkv", start=0.0, end=1.0),
    Item("reel-2", film="reels", media="reel.2\x0b.mkv", start=0.0, end=1.0),
    Item("none-1", media="loose.mp4", start=5.0, end=6.0),
    Item("whole", film="Été", media="whole.mp4"),
]
#: What ELAN's schema asks of each element: its children in order, what must be said, what may be.
SCHEMA = {
    "ANNOTATION_DOCUMENT": (
        "LICENSE HEADER TIME_ORDER TIER LINGUISTIC_TYPE LOCALE LANGUAGE CONSTRAINT "
        "CONTROLLED_VOCABULARY LEXICON_REF EXTERNAL_REF", "DATE AUTHOR VERSION FORMAT", ""
    ),
    "HEADER": ("MEDIA_DESCRIPTOR LINKED_FILE_DESCRIPTOR PROPERTY", "", "MEDIA_FILE TIME_UNITS"),
    "MEDIA_DESCRIPTOR": (
        "", "MEDIA_URL MIME_TYPE", "RELATIVE_MEDIA_URL TIME_ORIGIN EXTRACTED_FROM"
    ),
    "PROPERTY": ("", "", "NAME"),
    "TIME_ORDER": ("TIME_SLOT", "", ""),
    "TIME_SLOT": ("", "TIME_SLOT_ID", "TIME_VALUE"),
    "TIER": ("ANNOTATION", "TIER_ID LINGUISTIC_TYPE_REF", "PARENT_REF PARTICIPANT ANNOTATOR"),
    "ANNOTATION": ("ALIGNABLE_ANNOTATION REF_ANNOTATION", "", ""),
    "ALIGNABLE_ANNOTATION": (
        "ANNOTATION_VALUE", "ANNOTATION_ID TIME_SLOT_REF1 TIME_SLOT_REF2", "SVG_REF"
    ),
    "REF_ANNOTATION": ("ANNOTATION_VALUE", "ANNOTATION_ID ANNOTATION_REF", "PREVIOUS_ANNOTATION"),
    "ANNOTATION_VALUE": ("", "", ""),
    "LINGUISTIC_TYPE": (
        "", "LINGUISTIC_TYPE_ID", "TIME_ALIGNABLE CONSTRAINTS GRAPHIC_REFERENCES"
    ),
    "CONSTRAINT": ("", "STEREOTYPE", "DESCRIPTION"),
}  # fmt: skip


@pytest.fixture(scope="module")
def model(world, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("models") / "sure"
    experiment = Experiment(
        "Sure", world.manifest, world.store, split="ten", positives=("S",),
        train_negatives=("HN",), estimators=("logistic",),
    )  # fmt: skip
    train_model(experiment, path)
    return path


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    """Features of spans of films."""
    path = tmp_path_factory.mktemp("spans") / "spans.zarr"
    chance = np.random.default_rng(3)
    rows = {clip.id: chance.normal(size=8).astype(np.float32) for clip in ITEMS}
    write_store(path, Manifest("spans", Items.of(ITEMS)), rows)
    return path


def check_schema(root: ElementTree.Element) -> None:
    """Children, attributes, ids and references as ELAN's schema has them."""
    for element in root.iter():
        children, must, may = (words.split() for words in SCHEMA[element.tag])
        places = [children.index(child.tag) for child in element]
        assert places == sorted(places)
        predicted = {name for name in element.attrib if not name.startswith("{")}
        assert set(must) <= predicted <= {*must, *may}
        assert element.tag != "ANNOTATION" or len(element) == 1
    assert root.attrib["FORMAT"] == "3.0"
    assert datetime.fromisoformat(root.attrib["DATE"]).tzinfo

    def all_of(tags: str, attribute: str) -> list[str]:
        return [e.attrib[attribute] for e in root.iter() if e.tag in tags and attribute in e.attrib]

    slots = all_of("TIME_SLOT", "TIME_SLOT_ID")
    notes = all_of("ALIGNABLE_ANNOTATION REF_ANNOTATION", "ANNOTATION_ID")
    stereotypes = all_of("CONSTRAINT", "STEREOTYPE")
    identifiers = [*slots, *notes, *stereotypes]
    assert len(set(identifiers)) == len(identifiers)
    assert all(re.fullmatch(r"[A-Za-z_][\w.-]*", clip) for clip in identifiers)
    refs = [*all_of("ALIGNABLE_ANNOTATION", "TIME_SLOT_REF1")]
    assert sorted([*refs, *all_of("ALIGNABLE_ANNOTATION", "TIME_SLOT_REF2")]) == sorted(slots)
    assert set(all_of("REF_ANNOTATION", "ANNOTATION_REF")) <= set(notes)
    tiers, kinds = all_of("TIER", "TIER_ID"), all_of("LINGUISTIC_TYPE", "LINGUISTIC_TYPE_ID")
    assert len(set(tiers)) == len(tiers)
    assert set(all_of("TIER", "PARENT_REF")) <= set(tiers)
    assert set(all_of("TIER", "LINGUISTIC_TYPE_REF")) <= set(kinds)
    assert set(all_of("LINGUISTIC_TYPE", "CONSTRAINTS")) <= set(stereotypes)
    values = [int(clip) for clip in all_of("TIME_SLOT", "TIME_VALUE")]
    assert values == sorted(values)
    last = next(e.text for e in root.iter("PROPERTY") if e.get("NAME") == "lastUsedAnnotationId")
    assert int(last or 0) == max(int(clip.removeprefix("a")) for clip in notes)


def test_another_program_reads_what_was_said_and_when(model, store, tmp_path):
    predictions = predict(model, store)
    predicted = dict(zip(predictions.ids, predictions.predicted, strict=True))
    sure = dict(zip(predictions.ids, predictions.probabilities[:, 1].tolist(), strict=True))
    files = elan_files(predictions, Items.of(ITEMS))
    assert list(files) == ["Été.eaf", "été-2.eaf", "reel.1.eaf", "reel.2-.eaf", "loose.eaf"]
    heard: dict[str, tuple[int, int, str, float]] = {}
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        check_schema(ElementTree.parse(tmp_path / name).getroot())
        read = Eaf(str(tmp_path / name))
        for tier in read.get_tier_names():
            parent = read.get_parameters_for_tier(tier).get("PARENT_REF")
            if parent is None:
                spans = sorted(read.get_annotation_data_for_tier(tier))
                assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))
                clips = read.get_ref_annotation_data_for_tier(f"{tier}, clip")
                shares = read.get_ref_annotation_data_for_tier(f"{tier}, probability of S")
                by_time = {(start, end): value for start, end, value, *_ in spans}
                values = {(start, end): float(value) for start, end, value, *_ in shares}
                for start, end, clip, *_ in clips:
                    heard[clip] = start, end, by_time[start, end], values[start, end]
    spans = [clip for clip in ITEMS if clip.start is not None]
    assert set(heard) == {clip.id for clip in spans}
    for item in spans:
        start, end, value, share = heard[item.id]
        assert value == predicted[item.id]
        assert share == pytest.approx(sure[item.id], abs=5e-4)
        assert start == round(item.start * 1000)
        assert end == max(round(item.end * 1000), start + 1)

    # The one that overlaps others has tiers of its own; the film is looked for beside the file.
    film = Eaf(str(tmp_path / "Été.eaf"))
    assert [clip for clip in film.get_tier_names() if "," not in clip] == [
        "logistic: HN vs S", "logistic: HN vs S (2)",
    ]  # fmt: skip
    [linked] = film.get_linked_files()
    assert linked["RELATIVE_MEDIA_URL"] == "./Été à Paris.mp4"
    assert linked["MIME_TYPE"] == "video/mp4"
    assert all(str(tmp_path) not in text for text in files.values())


def test_what_was_seen_in_training_is_marked(model, world):
    """As the same ids with times, of which the model has seen some."""
    store = open_store(world.store)
    predictions = predict(model, store)
    items = Items.of(
        [
            Item(clip, film="all", media="all.mp4", start=float(row), end=row + 1.0)
            for row, clip in enumerate(world.ids)
        ]
    )
    [text] = elan_files(predictions, items).values()
    root = ElementTree.fromstring(text)
    by_tier = {clip.get("TIER_ID"): clip for clip in root.iter("TIER")}
    marked = by_tier["logistic: HN vs S, seen in training"]
    assert len(marked) == len(predictions.about["seen"]) < len(world.ids)
    clips = {
        note.get("ANNOTATION_REF"): note.findtext("ANNOTATION_VALUE")
        for note in by_tier["logistic: HN vs S, clip"].iter("REF_ANNOTATION")
    }
    seen = {clips[note.get("ANNOTATION_REF")] for note in marked.iter("REF_ANNOTATION")}
    assert seen == set(predictions.about["seen"])


def test_clips_without_times_have_no_place_in_elan(model, world):
    predictions = predict(model, world.store)
    with pytest.raises(ExperimentError, match="none of the 200 clips has a start and an end"):
        elan_files(predictions, Manifest.load(world.manifest).items)


def test_spreadsheets_get_numbers_and_never_formulas(model, store):
    predictions = predict(model, store, band=(0.4, 0.6))
    tables = film_tables(predictions, Items.of(ITEMS))
    assert list(tables) == ["Été.csv", "été-2.csv", "reels.csv", "no-film.csv"]
    rows = {}
    for text in tables.values():
        assert text.startswith("\ufeff")
        for row in csv.DictReader(io.StringIO(text.removeprefix("\ufeff"), newline="")):
            rows[row["clip"]] = row
            assert not any(cell.startswith(("=", "+", "-", "@", "\t")) for cell in row.values())
    assert set(rows) == {clip.id for clip in ITEMS}
    for clip, predicted, values in zip(
        predictions.ids, predictions.predicted, predictions.probabilities.tolist(), strict=True
    ):
        row = rows[clip]
        assert row["said"] == predicted
        assert (predicted == UNSURE) == (0.4 <= values[1] <= 0.6)
        assert float(row["probability of HN"]) == pytest.approx(values[0], abs=1e-6)
        assert float(row["probability of S"]) == pytest.approx(values[1], abs=1e-6)
    assert rows["two-1"]["file"] == "'=cmd|'calc'!A0.avi"
    assert (float(rows["two-1"]["start"]), float(rows["two-1"]["end"])) == (1.5, 2.25)
    assert rows["whole"]["start"] == ""


def test_the_command(obygaze, model, store, world, tmp_path):
    ask = ["models", "predict", model, store, "--elan", tmp_path / "films", "--csv", tmp_path / "t"]
    result = obygaze(*ask)
    assert result.exit_code == 0, result.stderr
    assert f"4 tables, one a film -> {tmp_path / 't'}" in result.stdout
    assert f"5 files for ELAN -> {tmp_path / 'films'}" in result.stdout
    assert "1 clip not in them: the manifest gives no start and end in the film" in result.stdout
    assert len(list((tmp_path / "films").iterdir())) == 5

    # Other files in the folder are let alone; one that is there stops all.
    (tmp_path / "films/Été à Paris.mp4").write_bytes(b"film")
    (tmp_path / "t/reels.csv").unlink()
    refused = obygaze(*ask)
    assert refused.exit_code == 1
    assert "exists already" in refused.stderr
    assert not (tmp_path / "t/reels.csv").exists()
    assert obygaze(*ask, "--overwrite").exit_code == 0
    assert (tmp_path / "films/Été à Paris.mp4").read_bytes() == b"film"

    # What somebody else annotated, or made of ours, is not replaced even then.
    document = next((tmp_path / "films").glob("*.eaf"))
    document.write_text(document.read_text().replace(">Sure<", ">sure<").replace("clip", "Clip"))
    edited, written = document.read_bytes(), {p: p.read_bytes() for p in (tmp_path / "t").iterdir()}
    refused = obygaze(*ask, "--overwrite")
    assert (refused.exit_code, "edited since" in refused.stderr) == (1, True)
    assert document.read_bytes() == edited
    assert {p: p.read_bytes() for p in (tmp_path / "t").iterdir()} == written

    nowhere = obygaze("models", "predict", model, world.store, "--elan", tmp_path / "x")
    assert nowhere.exit_code == 1
    assert nowhere.stderr.count("\n") == 1
    assert not (tmp_path / "x").exists()
