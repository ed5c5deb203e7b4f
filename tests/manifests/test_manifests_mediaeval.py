"""LIRIS-ACCEDE and MediaEval 2015: text files in, a manifest with three label sets out."""

import json
from dataclasses import replace

import pytest

from obygaze_features.errors import ManifestError
from obygaze_features.manifests import Manifest
from obygaze_features.manifests.check import check

SETS = "id name set|0 A0.mp4 1|1 A1.mp4 2|2 A2.mp4 0|3 A3.mp4 0"
VIOLENCE = "id name violenceClass|0 A0.mp4 1|1 A1.mp4 0|2 A2.mp4 0"
AFFECT = "id name valenceClass arousalClass|0 A0.mp4 -1 1|1 A1.mp4 0 -1|3 A3.mp4 1 0"
RANKING = (
    "id name valenceRank arousalRank valenceValue arousalValue valenceVariance arousalVariance"
    "|0 A0.mp4 1 9 1.5 3.2 0.1 0.2|1 A1.mp4 2 8 3.4 2.9 0.1 0.2|2 A2.mp4 3 7 2.6 4.5 0.1 0.2"
)


@pytest.fixture
def folder(tmp_path):
    result = tmp_path / "annotations"
    result.mkdir()
    return result


def write(folder, **files):
    """Files as they are given out: tabs between the cells, a header."""
    for name, text in files.items():
        (folder / f"{name}.txt").write_text(text.replace(" ", "\t").replace("|", "\n") + "\n")
    return folder


def test_three_label_sets_have_their_own_levels(folder, tmp_path):
    write(folder, MEDIAEVALsets=SETS, MEDIAEVALviolence=VIOLENCE, MEDIAEVALaffect=AFFECT)
    Manifest.from_mediaeval(folder).save(tmp_path / "manifest")
    read = Manifest.load(tmp_path / "manifest")
    assert read.ids == ["A0", "A1", "A2", "A3"]
    assert read["A2"].media == "A2.mp4"
    assert read.label_names == ["arousal", "valence", "violence"]
    assert read.default_labels == "violence"
    assert read.labels().level_of == {"A0": "violent", "A1": "non-violent", "A2": "non-violent"}
    assert read.labels("valence").level_of == {"A0": "negative", "A1": "neutral", "A3": "positive"}
    assert read.labels("arousal").level_of == {"A0": "active", "A1": "calm", "A3": "neutral"}
    codes = {name: read.label_scheme(name).codes for name in read.label_names}
    assert codes == {
        "arousal": ("calm", "neutral", "active"),
        "valence": ("negative", "neutral", "positive"),
        "violence": ("non-violent", "violent"),
    }
    assert read.label_scheme("valence").level("-1") == "negative"
    measures = {name: read.labels(name).about["measure"] for name in read.label_names}
    assert measures == {
        "violence": "trec_average_precision",
        "valence": "accuracy",
        "arousal": "accuracy",
    }


def test_the_official_sets_are_folds_and_test_is_the_last(folder):
    manifest = Manifest.from_mediaeval(write(folder, ACCEDEsets=SETS))
    assert manifest.split("official").fold_of == {"A0": 0, "A1": 1, "A2": 2, "A3": 2}
    assert manifest.split("development").fold_of == {"A0": 0, "A1": 0, "A2": 1, "A3": 1}
    folds = manifest.split("official").about["folds"]
    assert folds == {0: "learning", 1: "validation", 2: "test"}


def test_without_sets_there_is_no_split_but_a_note(folder):
    manifest = Manifest.from_mediaeval(write(folder, MEDIAEVALviolence=VIOLENCE))
    notes = manifest.notes
    assert manifest.split_names == []
    [note] = [entry for entry in notes if "split" in entry]
    assert note.startswith("NOTE: no official split")
    assert "MEDIAEVALsets.txt or ACCEDEsets.txt" in note
    notes = Manifest.from_mediaeval(write(folder, ACCEDEsets=SETS)).notes
    assert not any("official split" in entry for entry in notes)


def test_without_a_validation_set_there_is_one_split(folder):
    manifest = Manifest.from_mediaeval(write(folder, MEDIAEVALsets=SETS.replace(" 2|", " 1|")))
    assert manifest.split_names == ["official"]
    assert manifest.split("official").fold_of == {"A0": 0, "A1": 0, "A2": 1, "A3": 1}


def test_values_become_classes_only_without_classes(folder):
    """1.5 is a score of -.75, 3.4 of .2, 2.6 of -.2; 3.2 of .1, 2.9 of -.05, 4.5 of .75."""
    write(folder, ACCEDEranking=RANKING)
    manifest = Manifest.from_mediaeval(folder)
    notes = manifest.notes
    valence, arousal = manifest.labels("valence"), manifest.labels("arousal")
    assert valence.levels == ["negative", "positive", "negative"]
    assert arousal.levels == ["neutral", "neutral", "active"]
    assert "an inference" in notes[0]
    assert "an inference" in valence.about["rule"]
    wider = Manifest.from_mediaeval(folder, threshold=0.2).labels("valence")
    assert wider.levels == ["negative", "neutral", "neutral"]
    write(folder, ACCEDEaffect=AFFECT)
    manifest = Manifest.from_mediaeval(folder)
    notes = manifest.notes
    assert manifest.labels("valence").levels == ["negative", "neutral", "positive"]
    assert [entry for entry in notes if "official split" not in entry] == []
    assert manifest.labels("valence").extra["valenceValue"] == ["1.5", "3.4", ""]


def test_values_may_be_scores_already(folder):
    write(folder, ACCEDEranking=RANKING.replace("1.5 3.2", "-0.5 0.15").split("|1 A1")[0])
    manifest = Manifest.from_mediaeval(folder, scale="scores")
    assert manifest.labels("valence").levels == ["negative"]
    assert manifest.labels("arousal").levels == ["neutral"]  # over .15, not at it
    with pytest.raises(ManifestError, match=r"A0.mp4 has the valenceValue -0.5, .* --values"):
        Manifest.from_mediaeval(folder)


def test_mediaevals_file_wins_over_accedes(folder):
    write(
        folder, ACCEDEviolence=VIOLENCE, MEDIAEVALviolence=VIOLENCE.replace("A1.mp4 0", "A1.mp4 1")
    )
    write(folder, MEDIAEVALsets="id name set|0 M0.mp4 0", ACCEDEsets=SETS)
    manifest = Manifest.from_mediaeval(folder)
    notes = manifest.notes
    assert manifest.labels("violence").level_of["A1"] == "violent"
    assert manifest.ids == ["A0", "A1", "A2", "A3", "M0"]
    assert notes == ["1 row differs between ACCEDE*.txt and MEDIAEVAL*.txt; MediaEval's was taken"]


def test_the_command(folder, tmp_path, obygaze):
    write(folder, MEDIAEVALsets=SETS, MEDIAEVALviolence=f"{VIOLENCE}|9 A9.mp4 0")
    write(folder, MEDIAEVALaffect=AFFECT)
    manifest = tmp_path / "manifest"
    result = obygaze("manifests", "import", "accede", folder, "-o", manifest)
    assert result.exit_code == 0, result.output
    assert "5 clips" in result.output
    assert "no fold: 1 clip, which is in no set" in result.output
    assert obygaze("manifests", "check", manifest).exit_code == 0
    for labels, level in (("violence", "violent"), ("valence", "neutral"), ("arousal", "calm")):
        outcome = obygaze("manifests", "stats", manifest, "--labels", labels, "--json")
        assert json.loads(outcome.output)["levels"][level]["count"] == 1


def test_labels_are_checked_by_their_own_scheme(folder, tmp_path):
    write(folder, MEDIAEVALviolence=VIOLENCE, MEDIAEVALaffect=AFFECT)
    manifest = Manifest.from_mediaeval(folder)
    assert manifest.select(levels=["Positive"], labels="valence").ids == ["A3"]
    with pytest.raises(ManifestError, match="unknown label 'Positive'"):
        manifest.select(levels=["Positive"], labels="violence")
    manifest.save(tmp_path / "m")
    before = {path.name: path.read_bytes() for path in (tmp_path / "m").rglob("*.*")}
    Manifest.load(tmp_path / "m").save(tmp_path / "again")
    assert {path.name: path.read_bytes() for path in (tmp_path / "again").rglob("*.*")} == before
    table = tmp_path / "m/labels/valence.csv"
    table.write_text(table.read_text().replace("neutral", "violent"))
    [problem] = check(tmp_path / "m")
    assert "valence.csv, line 3: unknown label 'violent'; known are negative" in problem


def test_label_sets_of_two_schemes_are_refused(folder, tmp_path, obygaze):
    write(folder, MEDIAEVALviolence=VIOLENCE, MEDIAEVALaffect=AFFECT)
    manifest = Manifest.from_mediaeval(folder)
    again = replace(manifest.labels("valence"), name="others", levels=["positive"] * 3)
    manifest.with_parts(labels=[again]).save(tmp_path / "m")
    for command in ("merge", "agreement"):
        pair = ("--labels", "violence", "--labels", "valence")
        result = obygaze("annotations", command, tmp_path / "m", *pair)
        assert (result.exit_code, len(result.output.splitlines())) == (1, 1)
        assert "of accede have different levels or concepts" in result.output
    own = ("--labels", "others", "--labels", "valence")
    assert obygaze("annotations", "merge", tmp_path / "m", *own).exit_code == 0
    merged = Manifest.load(tmp_path / "m")
    assert merged.labels("merged").levels == ["positive"] * 3
    assert merged.label_scheme("merged") == merged.label_scheme("valence")
    assert check(tmp_path / "m") == []


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ('{"label_scheme": {"name": "x", "levels": []}}', "'x' has no levels"),
        ('{"label_scheme": "x"}', "the label scheme is malformed"),
        ("[]", "must hold an object"),
    ],
)
def test_malformed_scheme_is_named(said, message, folder, tmp_path):
    Manifest.from_mediaeval(write(folder, MEDIAEVALaffect=AFFECT)).save(tmp_path / "m")
    (tmp_path / "m/labels/valence.json").write_text(said)
    [problem] = check(tmp_path / "m")
    assert problem.startswith(str(tmp_path / "m/labels/valence.json: ")[:-1])
    assert message in problem
    with pytest.raises(ManifestError, match=r"valence\.json: "):
        Manifest.load(tmp_path / "m").labels("valence")


BROKEN = {
    "a class that there is not": (
        {"MEDIAEVALviolence": VIOLENCE.replace("A1.mp4 0", "A1.mp4 2")},
        "MEDIAEVALviolence.txt, line 3: violenceClass '2' is not one of 0, 1",
    ),
    "a set that there is not": (
        {"ACCEDEsets": SETS.replace("A2.mp4 0", "A2.mp4 3")},
        "ACCEDEsets.txt, line 4: set '3' is not one of 1, 2, 0",
    ),
    "a value that is none": (
        {"ACCEDEranking": RANKING.replace("1.5", "high")},
        "ACCEDEranking.txt, line 2: valenceValue 'high' is not a number",
    ),
    "a value that is no number": (
        {"ACCEDEranking": RANKING.replace("1.5", "nan")},
        "A0.mp4 has the valenceValue nan",
    ),
    "a name twice": (
        {"ACCEDEsets": SETS.replace("A2", "A1")},
        "ACCEDEsets.txt, line 4: duplicate name 'A1.mp4'",
    ),
    "a name that is a path": (
        {"ACCEDEsets": SETS.replace("A2", "../A2")},
        "ACCEDEsets.txt, line 4: id '../A2' is not allowed",
    ),
    "no name": ({"ACCEDEsets": SETS.replace("A2.mp4", "")}, "ACCEDEsets.txt, line 4: an empty id"),
    "a column that is missing": (
        {"ACCEDEaffect": AFFECT.replace("arousalClass", "arousal")},
        "ACCEDEaffect.txt, line 1: no column 'arousalClass'",
    ),
    "no such files": ({"readme": "id"}, "has no clips of LIRIS-ACCEDE"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_bad_files_are_one_line(case, folder, tmp_path, obygaze):
    files, message = BROKEN[case]
    write(folder, **files)
    result = obygaze("manifests", "import", "accede", folder, "-o", tmp_path / "manifest")
    assert result.exit_code == 1
    assert message in result.output
    assert len(result.output.splitlines()) == 1
    assert not (tmp_path / "manifest").exists()


def test_a_threshold_that_cuts_nothing(folder, tmp_path, obygaze):
    write(folder, ACCEDEranking=RANKING)
    result = obygaze("manifests", "import", "accede", folder, "--threshold", "1")
    assert result.exit_code == 2
    assert "from 0 to below 1, not 1" in result.output
