"""What timelines hold, in figures; and as files for ELAN and for spreadsheets."""

import csv
import io
import itertools
import json
from fractions import Fraction
from xml.etree import ElementTree

import pytest
from pympi.Elan import Eaf

from obygaze_features.annotations import Film, Issue, Segment, Timelines
from obygaze_features.annotations.build import read_films
from obygaze_features.annotations.export import elan_files, spreadsheet_files
from obygaze_features.errors import AnnotationError
from obygaze_features.manifests import Item, Items, LabelScheme, LabelSet, Level, Manifest
from tests.experiments.test_experiments_elan import check_schema

SEGMENTS = [
    Segment("juno", "ann", 0, 10.0004, "EN"),
    Segment("juno", "ann", 5, 20, "S", ("Look", "Body"), "=cmd|'calc'!A0"),
    Segment("juno", "ann", 12, 15.5, "S", ("Body",), "'+1"),
    Segment("juno", "bob", 0, 30, "HN", (), "Été\r\n«x» <&>\x0b"),
    Segment("leon", "ann", 3600, 3725.25, "NS", ("Speech",)),
]
CLIPS = [
    Item("juno-1", film="juno", media="Juno.mkv", start=0.0, end=10.0),
    Item("juno-2", film="juno", media="Juno.mkv", start=10.0, end=20.5),
    Item("other-1", film="other", media="other.mp4", start=0.0, end=1.0),
    Item("juno-whole", film="juno", media="whole.mp4"),
]


@pytest.fixture
def made():
    films = {"juno": Film("Juno — 2007", 30.000021), "leon": Film("=Léon")}
    remarks = (Issue("f.csv, line 2", "juno", "bob", "ends before it starts", "left out"),)
    return Timelines.of("mine", SEGMENTS, films=films, issues=remarks)


@pytest.fixture
def manifest():
    ids = ["juno-1", "juno-2", "other-1"]
    looks = [(), ("Body", "Look"), ()]
    sets = [
        LabelSet("ann", ids, ["EN", "S", "EN"], looks),
        LabelSet("merged", ids, ["HN", "S", "EN"], [(), ("Body",), ()]),
        LabelSet("bob", ["other-1"], ["EN"], [()]),
    ]
    return Manifest("clips", Items.of(CLIPS)).with_parts(labels=sets)


def save(folder, files):
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8", newline="")
    return folder


def test_another_program_reads_every_annotators_tiers(made, tmp_path):
    folder = save(tmp_path / "films", elan_files(made))
    heard = []
    for film in ("juno", "leon"):
        check_schema(ElementTree.parse(folder / f"{film}.eaf").getroot())
        read = Eaf(str(folder / f"{film}.eaf"))
        for tier in read.get_tier_names():
            about = read.get_parameters_for_tier(tier)
            if "PARENT_REF" in about:
                continue
            spans = sorted(read.get_annotation_data_for_tier(tier))
            assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))
            below = {}
            for what in ("concepts", "comment"):
                if f"{tier}, {what}" in read.get_tier_names():
                    for start, end, value, *_ in read.get_ref_annotation_data_for_tier(
                        f"{tier}, {what}"
                    ):
                        below[start, end, what] = value
            for start, end, value in spans:
                text = [below.get((start, end, what), "") for what in ("concepts", "comment")]
                heard.append((film, about["ANNOTATOR"], start, end, value, *text))
    assert sorted(heard) == [
        ("juno", "ann", 0, 10000, "Easy Negative", "", ""),
        ("juno", "ann", 5000, 20000, "Sure", "Look, Body", "=cmd|'calc'!A0"),
        ("juno", "ann", 12000, 15500, "Sure", "Body", "'+1"),
        ("juno", "bob", 0, 30000, "Hard Negative", "", "Été\r\n«x» <&>\ufffd"),
        ("leon", "ann", 3600000, 3725250, "Not Sure", "Speech", ""),
    ]


def test_spreadsheet_formulas_are_escaped_and_restored(made, tmp_path):
    files = spreadsheet_files(made)
    assert list(files) == ["segments.csv", "films.csv"]
    for text in files.values():
        assert text.startswith("\ufeff")
        for row in csv.reader(io.StringIO(text.removeprefix("\ufeff"), newline="")):
            assert not any(cell.startswith(("=", "+", "-", "@", "\t")) for cell in row)
    folder = save(tmp_path / "out", files)
    back = Timelines.from_csv(folder / "segments.csv", films=read_films(folder / "films.csv"))
    assert (back.segments, back.films) == (made.segments, made.films)


def test_a_level_that_spreadsheets_would_compute_is_escaped():
    scheme = LabelScheme("mine", (Level("N", "none"), Level("S", '=HYPERLINK("http://x.example")')))
    timelines = Timelines.of("t", [Segment("f", "ann", 0, 1, "S")], scheme=scheme)
    text = spreadsheet_files(timelines)["segments.csv"]
    table = csv.DictReader(io.StringIO(text, newline=""))
    assert next(table)["level"] == '\'=HYPERLINK("http://x.example")'


def test_the_sample_comes_back_from_both(authors, tmp_path, obygaze):
    timelines = Timelines.from_mobygaze(authors / "mobygaze/sample_120_rows.csv")
    timelines.save(tmp_path / "t")
    ask = ["annotations", "export", tmp_path / "t", "--elan", "--csv", "-o", tmp_path / "out"]
    result = obygaze(*ask)
    assert result.exit_code == 0, result.output
    assert f"1 file for ELAN, one a film -> {tmp_path / 'out'}" in result.stdout
    assert f"segments.csv, films.csv -> {tmp_path / 'out'}" in result.stdout
    films = read_films(tmp_path / "out/films.csv")
    for back in (
        Timelines.from_elan(tmp_path / "out"),
        Timelines.from_csv(tmp_path / "out/segments.csv", films=films),
    ):
        assert (back.segments, back.films, back.scheme) == (
            timelines.segments,
            timelines.films,
            timelines.scheme,
        )

    # What is there is let alone, and nothing is written then.
    (tmp_path / "out/films.csv").unlink()
    refused = obygaze(*ask)
    assert (refused.exit_code, refused.stderr.count("\n")) == (1, 1)
    assert "exists already" in refused.stderr
    assert not (tmp_path / "out/films.csv").exists()
    assert obygaze(*ask, "--overwrite").exit_code == 0


def test_a_manifests_labels_are_further_tiers_and_not_read_back(made, manifest, tmp_path):
    folder = save(tmp_path / "films", elan_files(made, manifest))
    read = Eaf(str(folder / "juno.eaf"))
    check_schema(ElementTree.parse(folder / "juno.eaf").getroot())
    tiers = list(read.get_tier_names())
    assert [tier for tier in tiers if tier.endswith("clips")] == ["ann, clips", "merged, clips"]
    spans = [(0, 10000, "Hard Negative"), (10000, 20500, "Sure")]
    assert sorted(read.get_annotation_data_for_tier("merged, clips")) == spans
    clips = read.get_ref_annotation_data_for_tier("merged, clips, clip")
    assert sorted(entry[2] for entry in clips) == ["juno-1", "juno-2"]
    [[_, _, concepts, *_]] = read.get_ref_annotation_data_for_tier("ann, clips, concepts")
    assert concepts == "Body, Look"
    [linked] = read.get_linked_files()
    assert linked["RELATIVE_MEDIA_URL"] == "./Juno.mkv"
    assert Eaf(str(folder / "leon.eaf")).get_linked_files() == []
    # XML has no way of writing a vertical tab.
    assert [segment.start for segment in Timelines.from_elan(folder).segments] == [
        segment.start for segment in made.segments
    ]
    assert Timelines.from_elan(folder).annotators == ["ann", "bob"]


def test_a_manifests_labels_side_by_side(made, manifest):
    text = spreadsheet_files(made, manifest)["clips.csv"].removeprefix("\ufeff")
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [(row["clip"], row["start"], row["end"]) for row in rows] == [
        ("juno-1", "0", "10"), ("juno-2", "10", "20.5"),
    ]  # fmt: skip
    assert [row["ann"] for row in rows] == ["Easy Negative", "Sure"]
    assert [row["merged"] for row in rows] == ["Hard Negative", "Sure"]
    assert [row["ann, concepts"] for row in rows] == ["", "Body, Look"]
    assert [row["bob"] for row in rows] == ["", ""]


def test_what_cannot_be_exported(made, tmp_path, obygaze):
    made.save(tmp_path / "t")
    assert obygaze("annotations", "export", tmp_path / "t", "-o", tmp_path / "x").exit_code == 2
    whole = Manifest("whole", Items.of([Item("juno-whole", film="juno", media="whole.mp4")]))
    with pytest.raises(AnnotationError, match="'whole' has no clips with a start and an end"):
        elan_files(made, whole)
    none = obygaze("annotations", "export", tmp_path, "--csv", "-o", tmp_path / "x")
    assert (none.exit_code, none.stderr.count("\n")) == (1, 1)
    assert not (tmp_path / "x").exists()


def test_what_timelines_hold(made, tmp_path, obygaze):
    made.save(tmp_path / "t")
    facts = json.loads(obygaze("annotations", "show", tmp_path / "t", "--json").stdout)
    assert facts["segments"] == 5
    for film, by_annotator in made.by_film.items():
        assert facts["films"][film]["title"] == made.films[film].title
        for annotator, segments in by_annotator.items():
            text = facts["films"][film]["annotators"][annotator]
            assert text["segments"] == len(segments)
            for code in made.scheme.codes:
                of_level = [segment for segment in segments if segment.level == code]
                assert text["levels"][code] == pytest.approx(float(brute_force(of_level)))
            assert text["covered"] == pytest.approx(float(brute_force(segments)))
    assert facts["films"]["juno"]["annotators"]["bob"]["remarks"] == 1
    result = obygaze("annotations", "show", tmp_path / "t").stdout.splitlines()
    assert result[0] == "mine: 5 segments of 2 films by 2 annotators"
    row = next(
        line.removeprefix(made.films["juno"].title).split() for line in result if " ann " in line
    )
    assert row == ["ann", "3", "0:00:10", "0:00:00", "0:00:00", "0:00:15", "0:00:20", "67%"]
    assert result[-1] == "f.csv, line 2: juno bob: ends before it starts (left out)"


def brute_force(segments):
    """The length of the union: the pieces between all boundaries that some segment covers."""
    spans = [(Fraction(segment.start), Fraction(segment.end)) for segment in segments]
    edges = sorted({edge for span in spans for edge in span})
    return sum(
        (b - a for a, b in itertools.pairwise(edges) if any(s <= a and b <= e for s, e in spans)),
        Fraction(0),
    )


def test_long_lists_are_cut(tmp_path, obygaze):
    segments = [Segment(f"f{n:02d}", "a", 0, 1, "S") for n in range(50)]
    remarks = tuple(Issue(f"line {n}", "f00", "a", "odd", "kept") for n in range(50))
    Timelines.of("many", segments, issues=remarks).save(tmp_path / "t")
    result = obygaze("annotations", "show", tmp_path / "t").stdout.splitlines()
    assert "and 10 more; --json has all" in result
    assert (
        f"line 0: f00 a: odd (kept); and 49 more like this: {tmp_path / 't/remarks.csv'}" in result
    )


def test_a_folder_that_is_no_timelines(tmp_path, made, obygaze):
    made.save(tmp_path / "all/mine")
    result = obygaze("annotations", "show", tmp_path / "all")
    assert result.stderr.endswith(
        f"all is not a folder of timelines; did you mean {tmp_path}/all/mine?\n"
    )
    result = obygaze("annotations", "show", tmp_path)
    assert (
        "is not a folder of timelines: it has no timelines.json (make one with: " in result.stderr
    )


def test_timelines_that_somebody_emptied(tmp_path, obygaze):
    Timelines.of("none", [], films={"juno": Film("Juno")}).save(tmp_path / "t")
    result = obygaze("annotations", "show", tmp_path / "t")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("none: 0 segments of 0 films by 0 annotators")
    timelines = obygaze("annotations", "export", tmp_path / "t", "--csv", "-o", tmp_path / "x")
    assert timelines.exit_code == 0, timelines.output
    assert "juno" in (tmp_path / "x/films.csv").read_text()


def test_edited_elan_files_are_never_replaced(made, tmp_path, obygaze):
    """Nor those that somebody made of ours in ELAN, which keeps the author and drops our sum."""
    made.save(tmp_path / "t")
    ask = ("annotations", "export", tmp_path / "t", "--elan", "--csv", "-o", tmp_path / "out")
    assert obygaze(*ask).exit_code == 0
    assert obygaze(*ask, "--overwrite").exit_code == 0
    film = tmp_path / "out/juno.eaf"
    theirs = Eaf(str(film))
    theirs.add_tier("mine")
    theirs.to_file(str(film))
    for text in (film.read_text(), "<ANNOTATION_DOCUMENT/>"):
        film.write_text(text)
        result = obygaze(*ask, "--overwrite")
        assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
        assert f"{film} holds annotations that obygaze did not write" in result.stderr
        assert film.read_text() == text
