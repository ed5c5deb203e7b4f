"""LIRIS-ACCEDE and MediaEval 2015: text files in, a manifest with three label sets out."""

from dataclasses import replace

import pytest

import obygaze_features as of
from obygaze_features.errors import ManifestError, UsageError
from tests.kit.files import refused, write

SETS = "id name set|0 A0.mp4 1|1 A1.mp4 2|2 A2.mp4 0|3 A3.mp4 0"
VIOLENCE = "id name violenceClass|0 A0.mp4 1|1 A1.mp4 0|2 A2.mp4 0"
AFFECT = "id name valenceClass arousalClass|0 A0.mp4 -1 1|1 A1.mp4 0 -1|3 A3.mp4 1 0"
RANKING = "id name valenceValue arousalValue|0 A0.mp4 1.5 3.2|1 A1.mp4 3.4 2.9|2 A2.mp4 2.6 4.5"


@pytest.fixture
def write_files(tmp_path):
    def write_files(**files):
        for name, text in files.items():
            rows = text.replace(" ", "\t").split("|")
            write(tmp_path / f"annotations/{name}.txt", *rows)
        return tmp_path / "annotations"

    return write_files


def test_three_label_sets_have_their_own_levels(write_files, tmp_path):
    folder = write_files(MEDIAEVALsets=SETS, MEDIAEVALviolence=VIOLENCE, MEDIAEVALaffect=AFFECT)
    write_files(ACCEDEviolence=VIOLENCE.replace("A1.mp4 0", "A1.mp4 1"))  # MediaEval's wins
    of.Manifest.from_accede(folder).save(tmp_path / "m")
    read = of.Manifest.load(tmp_path / "m")
    assert read.ids == ["A0", "A1", "A2", "A3"]
    assert (read["A2"].media, read.default_labels) == ("A2.mp4", "violence")
    assert read.labels().level_of == {"A0": "violent", "A1": "non-violent", "A2": "non-violent"}
    assert read.labels("valence").level_of == {"A0": "negative", "A1": "neutral", "A3": "positive"}
    assert read.labels("arousal").level_of == {"A0": "active", "A1": "calm", "A3": "neutral"}
    assert read.label_scheme("valence").level("-1") == "negative"
    assert read.labels().about["measure"] == "trec_average_precision"
    assert read.select(levels=["Positive"], labels="valence").ids == ["A3"]


def test_the_official_sets_are_folds_ending_with_test(write_files):
    manifest = of.Manifest.from_accede(write_files(ACCEDEsets=SETS))
    assert manifest.split("official").fold_of == {"A0": 0, "A1": 1, "A2": 2, "A3": 2}
    assert manifest.split("development").fold_of == {"A0": 0, "A1": 0, "A2": 1, "A3": 1}
    # Without a validation set there is one split.
    manifest = of.Manifest.from_accede(write_files(ACCEDEsets=SETS.replace(" 2|", " 1|")))
    assert manifest.split_names == ["official"]
    assert manifest.split("official").fold_of == {"A0": 0, "A1": 0, "A2": 1, "A3": 1}


def test_ratings_become_classes_where_nobody_gave_them(write_files):
    """Valence 1.5, 3.4, 2.6 and arousal 3.2, 2.9, 4.5 are -.75, .2, -.2 and .1, -.05, .75."""
    folder = write_files(ACCEDEranking=RANKING)
    manifest = of.Manifest.from_accede(folder)
    assert manifest.labels("valence").levels == ["negative", "positive", "negative"]
    assert manifest.labels("arousal").levels == ["neutral", "neutral", "active"]
    wider = of.Manifest.from_accede(folder, threshold=0.25).labels("valence")
    assert wider.levels == ["negative", "neutral", "neutral"]
    with pytest.raises(UsageError, match="below 1"):
        of.Manifest.from_accede(folder, threshold=1)
    write_files(ACCEDEranking=RANKING.replace("2.6", "5.1"))
    with pytest.raises(ManifestError, match=r"A2.mp4: valenceValue must be a number from 1 to 5"):
        of.Manifest.from_accede(folder)


def test_label_sets_of_two_schemes_are_refused(write_files, tmp_path, obygaze):
    manifest = of.Manifest.from_accede(write_files(MEDIAEVALviolence=VIOLENCE, ACCEDEaffect=AFFECT))
    again = replace(manifest.labels("valence"), name="others", levels=["positive"] * 3)
    manifest.with_parts(again).save(tmp_path / "m")
    pair = (tmp_path / "m", "--labels", "valence", "--labels")
    refused(obygaze("annotations", "merge", *pair, "violence"), "have schemes with different")
    refused(obygaze("annotations", "agreement", *pair, "violence"), "made by a rule", code=2)
    obygaze("annotations", "merge", *pair, "others", code=0)
    merged = of.Manifest.load(tmp_path / "m")
    assert merged.labels("merged").levels == ["positive"] * 3
    assert merged.label_scheme("merged") == merged.label_scheme("valence")
    table = tmp_path / "m/labels/valence.csv"
    table.write_text(table.read_text().replace("neutral", "violent"))
    result = obygaze("manifests", "check", tmp_path / "m", code=1)
    assert "valence.csv, line 3: unknown level 'violent'" in result.stdout
