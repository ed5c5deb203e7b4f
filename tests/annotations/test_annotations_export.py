"""Timelines as figures, ELAN files and spreadsheets."""

from collections import defaultdict
from xml.etree import ElementTree

import pytest
from pympi.Elan import Eaf

import obygaze_features as of
from obygaze_features.annotations import Film, Remark, Segment
from obygaze_features.annotations.export_elan import elan_files
from obygaze_features.common.elan import Document, to_eaf
from obygaze_features.common.names import file_names
from obygaze_features.manifests import Item, Items, LabelSet
from tests.kit.files import refused, write
from tests.kit.timelines import check_schema

SEGMENTS = [
    Segment("juno", "ann", 0, 10.0004, "EN"),
    Segment("juno", "ann", 5, 20, "S", ("Look", "Body"), "=cmd|'calc'!A0"),
    Segment("juno", "ann", 12, 15.5, "S", ("Body",), "'+1"),
    Segment("juno", "bob", 0, 30, "HN", (), "Été\r\n«x» <&>\x0b"),
    Segment("leon", "ann", 3600, 3725.25, "NS", ("Speech",)),
]
OWN = {"origin": "annotator"}
CLIPS = [
    Item("juno-1", film="juno", media="Juno.mkv", start=0.0, end=10.0),
    Item("juno-2", film="juno", media="Juno.mkv", start=10.0, end=20.5),
    Item("other-1", film="other", media="other.mp4", start=0.0, end=1.0),
    Item("juno-whole", film="juno", media="whole.mp4"),
]


@pytest.fixture
def marked():
    films = {"juno": Film("Juno — 2007", 30.000021), "leon": Film("=Léon")}
    remarks = (Remark("f.csv, line 2", "juno", "bob", "ends before it starts", "left out"),)
    return of.Timelines("mine", SEGMENTS, films=films, remarks=remarks)


@pytest.fixture
def manifest():
    ids = ["juno-1", "juno-2", "other-1"]
    sets = [
        LabelSet("ann", ids, ["EN", "S", "EN"], [(), ("Body", "Look"), ()], about=OWN),
        LabelSet("merged", ids, ["HN", "S", "EN"], [(), ("Body",), ()]),
        LabelSet("bob", ["juno-1", "other-1"], ["HN", "EN"], [(), ()], about=OWN),
    ]
    return of.Manifest("clips", Items.of(CLIPS)).with_parts(*sets)


def save(folder, files):
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8", newline="")
    return folder


def rows_of(path):
    """Return annotator, span, level, concepts and comments, as pympi reads them."""
    read = Eaf(str(path))
    tiers = read.get_tier_names()
    for tier in tiers:
        about = read.get_parameters_for_tier(tier)
        if "PARENT_REF" in about:
            continue
        notes = defaultdict(list)
        for kind in ("concepts", "comment"):
            name = f"{tier}, {kind}"
            if name in tiers:
                for start, end, text, *_ in read.get_ref_annotation_data_for_tier(name):
                    notes[start, end, kind].append(text)
        for start, end, level in sorted(read.get_annotation_data_for_tier(tier)):
            texts = (notes[start, end, kind] for kind in ("concepts", "comment"))
            yield about["ANNOTATOR"], start, end, level, *texts


def test_pympi_reads_every_annotators_tiers(marked, tmp_path):
    folder = save(tmp_path / "films", elan_files(marked))
    juno = folder / "Juno — 2007.eaf"
    check_schema(ElementTree.parse(juno).getroot())
    assert sorted(rows_of(juno)) == [
        ("ann", 0, 10000, "Easy Negative", [], []),
        ("ann", 5000, 20000, "Sure", ["Look", "Body"], ["=cmd|'calc'!A0"]),
        ("ann", 12000, 15500, "Sure", ["Body"], ["'+1"]),
        ("bob", 0, 30000, "Hard Negative", [], ["Été\r\n«x» <&>\ufffd"]),
    ]
    [row] = rows_of(folder / "=Léon.eaf")
    assert row == ("ann", 3600000, 3725250, "Not Sure", ["Speech"], [])
    types = Eaf(str(juno)).linguistic_types
    lists = {name: types[name].get("CONTROLLED_VOCABULARY_REF") for name in ("segment", "concepts")}
    assert lists == {"segment": "levels", "concepts": "concepts"}


def test_where_annotators_differ_is_a_tier_that_is_not_read_back(marked, manifest, tmp_path):
    folder = save(tmp_path / "films", elan_files(marked, manifest))
    read = Eaf(str(folder / "Juno — 2007.eaf"))
    check_schema(ElementTree.parse(folder / "Juno — 2007.eaf").getroot())
    differ = [(0, 10000, "ann: Easy Negative / bob: Hard Negative")]
    assert read.get_annotation_data_for_tier("to discuss") == differ
    [linked] = read.get_linked_files()
    assert linked["RELATIVE_MEDIA_URL"] == "./Juno.mkv"
    back = of.Timelines.from_elan(folder)  # comments differ: XML cannot write a vertical tab
    assert [s.start for s in back.segments] == [s.start for s in marked.segments]
    assert back.annotators == ["ann", "bob"]
    assert back.remarks == ()
    # Tiers that earlier versions wrote are no annotations, either.
    file = folder / "Juno — 2007.eaf"
    text = file.read_text(encoding="utf-8").replace('="to discuss"', '="label of a clip"')
    file.write_text(text, encoding="utf-8", newline="")
    assert of.Timelines.from_elan(folder).segments == back.segments


def test_file_names_are_valid_on_every_system():
    names = ["映" * 90, "映" * 90, "Am\u00e9lie", "Ame\u0301lie", "con", "Com1.two", "console"]
    files = file_names(names, ".eaf")
    assert max(len(file.encode()) for file in files) <= 200 < len(names[0].encode())
    assert len({*files}) == len(files)
    expected = ["Am\u00e9lie.eaf", "Am\u00e9lie-2.eaf", "_con.eaf", "_Com1.two.eaf", "console.eaf"]
    assert files[2:] == expected


@pytest.mark.parametrize(("media", "link"), [
    ("../films/x y#1.MP4", "./x y#1.MP4"),  # ELAN does not decode %20
    ("C:\\films\\Juno.mkv", "./Juno.mkv"), ("Dr.No", None),
])  # fmt: skip
def test_only_films_beside_the_file_are_linked(media, link):
    descriptor = ElementTree.fromstring(to_eaf(Document([], media))).find(".//MEDIA_DESCRIPTOR")
    assert (None if descriptor is None else descriptor.get("RELATIVE_MEDIA_URL")) == link


def test_show_summarises_timelines(marked, tmp_path, obygaze):
    marked.save(tmp_path / "t")
    # The two that are Sure overlap, and one of them an Easy Negative.
    lines = obygaze("annotations", "show", tmp_path / "t").stdout.splitlines()
    row = next(line.partition("Juno — 2007")[2].split() for line in lines if " ann " in line)
    assert row[:7] == ["ann", "3", "0:00:10", "0:00:00", "0:00:00", "0:00:15", "0:00:20"]


def test_elan_files_are_never_replaced(marked, tmp_path, obygaze):
    marked.save(tmp_path / "t")
    out = tmp_path / "out"
    command = ("annotations", "export", tmp_path / "t", "-o", out)
    obygaze(*command, code=0)
    (out / "=Léon.eaf").unlink()
    film = write(out / "Juno — 2007.eaf", "edited")
    refused(obygaze(*command), f"{film} already exists; choose another folder")
    assert [*out.iterdir()] == [film]
    assert film.read_text() == "edited\n"
