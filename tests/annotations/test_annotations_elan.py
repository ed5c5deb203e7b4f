"""ELAN files: ours are read by others and by us, others' are read, and hostile ones refused."""

import re
from dataclasses import asdict, replace
from xml.etree import ElementTree

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pympi.Elan import Eaf

import obygaze_features as of
from obygaze_features.annotations import Film, Segment

# Files of films that a property draws, without a folder and a command for each.
from obygaze_features.annotations.export_elan import elan_files

# Files as another program may write them: with any tiers, media and pick-lists.
from obygaze_features.common.elan import MAX_BYTES, Annotation, Document, Tier, to_eaf
from obygaze_features.errors import AnnotationError
from obygaze_features.manifests import Concept, LabelScheme, Level
from tests.kit.files import refused, write
from tests.kit.second import SCHEME, darkness
from tests.kit.timelines import check_schema, segments


def test_a_file_written_by_pympi_is_read(tmp_path):
    eaf = Eaf()
    eaf.remove_tier("default")
    eaf.add_linguistic_type("below", constraints="Symbolic_Association", timealignable=False)
    eaf.add_linguistic_type("segment")
    for tier, options in {"shots": {"part": "Juno", "ann": "Anna B"}, "Bob": {}}.items():
        eaf.add_tier(tier, **options)
    for tier, kind in {"dialogue": "default-lt", "level": "default-lt", "Cleo": "segment"}.items():
        eaf.add_tier(tier, kind)
    for tier, start, end, text in [
        ("shots", 1000, 2500, "Sure: Body, Clothes"),
        ("shots", 3000, 4000, "hard negative"),
        ("shots", 5000, 6000, "?"),
        ("Bob", 0, 2000, "a kiss"),
        ("Bob", 2000, 9000, ""),
        ("dialogue", 100, 900, "Hello: Look"),
        ("level", 100, 900, "Hello: Look"),
        ("Cleo", 100, 900, "Hello: Look"),
    ]:
        eaf.add_annotation(tier, start, end, text)
    for name, first, second in [
        ("level@Bob", "S", "Easy Negative"),
        ("Bob-concepts", "Look; Posture", ""),
        ("Bob colour", "red", ""),
    ]:
        eaf.add_tier(name, ling="below", parent="Bob")
        eaf.add_ref_annotation(name, "Bob", 500, first)
        eaf.add_ref_annotation(name, "Bob", 2500, second)
    eaf.to_file(str(tmp_path / "Juno 2007.eaf"))
    result = of.Timelines.from_elan(tmp_path / "Juno 2007.eaf")
    assert result.segments == (
        Segment("Juno_2007", "Anna_B", 1, 2.5, "S", ("Body", "Clothing")),
        Segment("Juno_2007", "Anna_B", 3, 4, "HN"),
        Segment("Juno_2007", "Bob", 0, 2, "S", ("Look", "Posture"), "a kiss"),
        Segment("Juno_2007", "Bob", 2, 9, "EN"),
    )
    assert result.films == {"Juno_2007": Film("Juno 2007", name="Juno 2007")}
    tiers = [re.findall("tier '(.+?)'", remark.where)[0] for remark in result.remarks]
    assert sorted(tiers) == ["Bob colour", "Cleo", "level", "shots"]


def eaf_of(*names, **options):
    annotation = Annotation(0, 1000, "Sure")
    return to_eaf(Document([Tier(name, "x", [annotation], **options) for name in names]))


#: The tiers of each file, what is read, and who that is.
NAMED = [
    # Tier names that do not belong to anybody.
    ({"Jane/Gilda.eaf": ["gaze"], "Omar/gilda.EAF": ["Gaze "]}, [""], ["Jane", "Omar"]),
    ({"Jane/Gilda.eaf": ["annotator1"]}, ["Jane"], ["annotator1"]),
    # Two people's tiers in a file belong to them, although each film has a folder.
    ({"1/G.eaf": ["Jane", "Omar"], "2/L.eaf": ["Jane", "Omar"]}, [""], ["Jane", "Omar"]),
    # A folder and a file.
    ({"A/G.eaf": ["default"], "B/G.eaf": ["default"]}, ["A", "B/G.eaf"], ["A", "B"]),
]


@pytest.mark.parametrize(("files", "sources", "annotators"), NAMED)
def test_annotators_are_named_by_tiers_or_files(tmp_path, files, sources, annotators):
    for path, tiers in files.items():
        write(tmp_path / path, eaf_of(*tiers))
    result = of.Timelines.from_elan(*(tmp_path / name for name in sources))
    assert result.annotators == annotators
    names = sorted({path.split("/")[1] for path in files})
    assert result.source == ", ".join(names)
    assert result.remarks == ()


def test_participants_are_no_annotators_and_a_broken_file_stops_no_other(tmp_path):
    dans = eaf_of("one", annotator="Dan")
    write(tmp_path / "juno.eaf", dans.replace("<TIER ", '<TIER PARTICIPANT="Juno" '))
    write(tmp_path / "Eve/juno.eaf", eaf_of())
    write(tmp_path / "bad.eaf", "")
    read = of.Timelines.from_elan(tmp_path, film="other")
    assert (read.annotators, [*read.films]) == (["Dan"], ["other"])
    assert {remark.where for remark in read.remarks} == {"Eve/juno.eaf", "bad.eaf"}


MILLISECONDS = st.integers(0, 200_000).map(lambda value: value / 1000)
FRAMES = st.integers(0, 5000).map(lambda value: round(value / 23.976, 6))
NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
IN_XML = st.text(max_size=8).map(lambda text: NOT_XML.sub("", text))
TEXTS = IN_XML.filter(lambda text: text == "" or text.strip())


#: Names with the marks that separate levels and concepts in ELAN.
MOODS = (Level("c", "calm: very"), Level("t", "T, t"))
MOOD = LabelScheme("mood", MOODS, (Concept("rain, snow"), Concept("a:b")))


@st.composite
def timelines(draw):
    times = draw(st.sampled_from([MILLISECONDS, FRAMES]))
    scheme = draw(st.sampled_from([of.obygaze_scheme(), MOOD]))
    segments = set()
    for _ in range(draw(st.integers(1, 10))):
        start, end = sorted(draw(st.lists(times, min_size=2, max_size=2, unique=True)))
        film = draw(st.sampled_from("fg"))
        annotator = draw(st.sampled_from("ab"))
        level = draw(st.sampled_from(scheme.codes))
        names = scheme.in_order(draw(st.sets(st.sampled_from(scheme.concept_names))))
        segments.add(Segment(film, annotator, start, end, level, names, draw(TEXTS)))
    later = FRAMES.map(lambda value: round(value + 300, 6))
    end = draw(st.none() | later)
    used = sorted({segment.film for segment in segments})
    films = {film: Film(draw(TEXTS), end) for film in used}
    about = {name: draw(TEXTS) for name in ("licence", "citation")}
    source = draw(TEXTS.filter(bool))  # without one, it is the files
    return of.Timelines("t", segments, films=films, scheme=scheme, source=source, **about)


def put(folder, made):
    """Write the ELAN files of timelines; return the folder."""
    for name, text in elan_files(made).items():
        write(folder / name, text, end="")
    return folder


@given(timelines())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_timelines_survive_an_elan_round_trip(tmp_path, drawn):
    for path in tmp_path.glob("*.eaf"):
        path.unlink()
    assert asdict(of.Timelines.from_elan(put(tmp_path, drawn))) == asdict(drawn)


def test_a_dataset_and_its_scheme_survive_another_program(tmp_path):
    original = darkness()
    for path in put(tmp_path, original).iterdir():
        check_schema(ElementTree.parse(path).getroot())
        read = Eaf(str(path))
        for name, entries in (("levels", SCHEME.levels), ("concepts", SCHEME.concepts)):
            vocabulary = read.get_cv_entries(name)
            offered = [text for ((text, *_),), _ in vocabulary.values()]
            assert offered == [entry.name for entry in entries]
        read.to_file(str(path))
    assert asdict(of.Timelines.from_elan(tmp_path)) == asdict(original)


def test_files_of_several_datasets_are_read_together(tmp_path):
    original = darkness()
    more = SCHEME.with_concepts([Concept("fog")])
    put(tmp_path, original)
    put(tmp_path, replace(original.of_films(["M"]), scheme=more, name="other", citation="C."))
    back = of.Timelines.from_elan(tmp_path)
    assert (back.name, back.scheme, back.films) == ("elan", more, original.films)
    assert back.citation == f"{original.citation}; C."
    # Files with other levels are not read with the levels of the first file.
    tense = Segment("a", "ann", 0, 1, "t")
    put(tmp_path, of.Timelines("moods", [tense], scheme=MOOD))
    with pytest.raises(AnnotationError, match=r"a\.eaf has different levels"):
        of.Timelines.from_elan(tmp_path)
    path = tmp_path / "a.eaf"
    write(path, path.read_text().replace('scheme">{', 'scheme">['))
    with pytest.raises(AnnotationError, match=f"{path}: its label scheme cannot be read"):
        of.Timelines.from_elan(path)


def read_edited(path, segments, old="", new=""):
    [text] = elan_files(of.Timelines("t", segments)).values()
    back = of.Timelines.from_elan(write(path, text.replace(old, new)))
    assert back.remarks == ()
    return [(segment.start, segment.end) for segment in back.segments]


def test_edited_and_short_times_are_read(tmp_path):
    path = tmp_path / "f.eaf"
    joined = segments("a", [(1.000417, 2.043711, "S"), (2.043711, 3, "EN")])
    assert read_edited(path, joined, '"2044"', '"2500"') == [(1.000417, 2.5), (2.5, 3)]
    # Segments shorter than a millisecond are not lost.
    near = [("a", 1.0001, 2), ("b", 1.0004, 3), ("c", 5, 5.0004)]
    near = [Segment("f", who, start, end, "S") for who, start, end in near]
    assert read_edited(path, near) == [(1, 2), (1, 3), (5, 5.001)]


def test_the_video_of_a_file_names_the_film_and_its_origin(tmp_path):
    films = {"f": Film("Noted", 90.5, media="f.mkv")}
    marks = segments("a", [(0.3, 0.8, "S"), (1.000417, 2, "S")], "f")
    [text] = elan_files(of.Timelines("t", marks, films=films)).values()
    # The sound has another origin than the video, before which the first segment starts.
    text = text.replace(
        "<MEDIA_DESCRIPTOR",
        """
        <MEDIA_DESCRIPTOR MEDIA_URL="f.wav" MIME_TYPE="audio/wav" TIME_ORIGIN="7" />
        <MEDIA_DESCRIPTOR TIME_ORIGIN="-600" """,
    )
    path = write(tmp_path / "f.eaf", text.replace("f.mkv", r"file:///C:\films/The f.mkv", 1))
    back = of.Timelines.from_elan(path, films={"f": Film("Given")})
    assert back.films == {"f": Film("Given", 89.9, media="The f.mkv")}
    cut = Segment("f", "a", 0.0, 0.2, "S")
    assert back.segments == (cut, Segment("f", "a", 0.400417, 1.4, "S"))


def test_pick_lists_are_proposed_as_levels(tmp_path):
    texts = ["none", "very $low"]
    tiers = [Tier(name, "x", [Annotation(0, 1000, name)]) for name in texts]
    text = to_eaf(Document(tiers), {"levels": dict.fromkeys(texts, "")})
    with pytest.raises(AnnotationError, match=r"'levels' \(--levels 'none,very \$low'\)"):
        of.Timelines.from_elan(write(tmp_path / "f.eaf", text))


SURE = Annotation(0, 1000, "Sure", {"comment": "why"})
EAF = to_eaf(Document([Tier("a", "segment", [SURE])]))
ROOT = "<ANNOTATION_DOCUMENT "
SECRET = "<!DOCTYPE b [<!ENTITY x SYSTEM 'secret.txt'>]>"
BROKEN = [
    (EAF.replace("why", "é").encode("latin-1"), "is not UTF-8"),
    (EAF.replace(ROOT, SECRET + ROOT).replace("Sure", "&x;").encode(), "declares a document type"),
    (b"<a>" * 100_000 + b"</a>" * 100_000, "is not an ELAN file"),
    (EAF.encode() + b" " * MAX_BYTES, "is larger than 17 MB"),
    (EAF.replace('"milliseconds"', '"PAL-frames"').encode(), "with times in milliseconds"),
]


@pytest.mark.parametrize(("data", "message"), BROKEN, ids=range(len(BROKEN)))
def test_broken_elan_files_are_refused_in_one_line(tmp_path, obygaze, data, message):
    (tmp_path / "f.eaf").write_bytes(data)
    result = obygaze("annotations", "import", "elan", tmp_path / "f.eaf", "-o", tmp_path / "t")
    refused(result, f"Error: {tmp_path / 'f.eaf'}", message)


def test_an_empty_folder_is_refused(tmp_path):
    with pytest.raises(AnnotationError, match=r"no \.eaf files in"):
        of.Timelines.from_elan(tmp_path)


def test_cyclic_and_orphan_tiers_are_read(tmp_path):
    """ELAN itself never writes cyclic or orphan tiers and notes."""
    ring = Annotation(5, 9, "S", {"comment": "ring"})
    noted = Annotation(10, 12, "S", {"comment": "x"})
    plain = Annotation(5, 9, "S")
    tiers = [Tier("A", "segment", [ring, noted]), Tier("C", "segment", [plain])]
    eaf = to_eaf(Document(tiers)).replace('TIER_ID="A"', 'TIER_ID="A" PARENT_REF="A"')
    eaf = eaf.replace('TIER_ID="C"', 'TIER_ID="C" PARENT_REF="gone"')
    eaf = eaf.replace('ANNOTATION_REF="a1"', 'ANNOTATION_REF="a3"')  # which it is itself
    [lost] = re.findall('ANNOTATION_ID="(.*?)" ANNOTATION_REF="a3"', eaf)
    result = of.Timelines.from_elan(write(tmp_path / "f.eaf", eaf))
    notes = [(s.annotator, s.start, s.comment) for s in result.segments]
    assert notes == [("A", 0.005, ""), ("A", 0.01, "x"), ("C", 0.005, "")]
    [remark] = result.remarks
    assert remark.where.endswith(f"annotation {lost}")


def test_overlapping_segments_are_in_tiers_of_their_own(tmp_path):
    segments = [
        Segment("juno", "ann", 0, 10.0004, "EN"),
        Segment("juno", "ann", 5, 20, "S", ("Look", "Body"), "=cmd|'calc'!A0"),
        Segment("juno", "bob", 0, 30, "HN", (), "Été\r\n«x» <&>\x0b"),
        Segment("juno", "bob", 30, 40, "EN"),
    ]
    films = {"juno": Film("Juno — 2007", media="../films/x y#1.MP4")}
    marked = of.Timelines("mine", segments, films=films)
    path = put(tmp_path, marked) / "Juno — 2007.eaf"
    check_schema(ElementTree.parse(path).getroot())
    read = Eaf(str(path))
    sure = (5000, 20000)
    assert {name: read.get_annotation_data_for_tier(name) for name in read.get_tier_names()} == {
        "ann": [(0, 10000, "Easy Negative")],
        "ann (2)": [(*sure, "Sure")],
        "ann (2), concepts": [(*sure, "Look", "Sure"), (*sure, "Body", "Sure")],
        "ann (2), comment": [(*sure, "=cmd|'calc'!A0", "Sure")],
        "bob": [(0, 30000, "Hard Negative"), (30000, 40000, "Easy Negative")],
        "bob, comment": [(0, 30000, "Été\r\n«x» <&>\ufffd", "Hard Negative")],
    }
    [linked] = read.get_linked_files()
    assert linked["RELATIVE_MEDIA_URL"] == "./x y#1.MP4"  # ELAN does not decode %20


@pytest.mark.parametrize("kind", ["to discuss", "label of a clip", "moment"])
def test_tiers_that_show_results_are_not_imported(tmp_path, kind):
    mark = Annotation(0, 1000, "Sure")
    tiers = [Tier("ann", "segment", [mark]), Tier("results", kind, [mark])]
    back = of.Timelines.from_elan(write(tmp_path / "f.eaf", to_eaf(Document(tiers))))
    assert (back.annotators, back.remarks) == (["ann"], ())


def test_file_names_are_valid_on_every_system():
    titles = ["映" * 90, "Am\u00e9lie", "Ame\u0301lie", "con", "Com1.two", "console"]
    films = {f"f{number}": Film(title) for number, title in enumerate(titles)}
    marked = [Segment(film, "ann", 0, 1, "S") for film in films]
    long, *files = elan_files(of.Timelines("t", marked, films=films))
    assert len(long.encode()) <= 200
    expected = ["Am\u00e9lie.eaf", "Am\u00e9lie-2.eaf", "_con.eaf", "_Com1.two.eaf", "console.eaf"]
    assert files == expected
