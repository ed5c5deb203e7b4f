"""The thesaurus: the counts of the paper's table 1, its texts, and ELAN's template read back."""

import json
from collections import Counter
from xml.etree import ElementTree

from pympi.Elan import Eaf

import obygaze_features as of
from obygaze_features.manifests import LabelScheme
from tests.kit.files import contents, csv_rows, refused, write

#: The paper's concepts in the table's order, and how many instances it has of each.
PAPER = {
    "Type of shot": 3, "Look": 2, "Body": 4, "Posture": 6, "Clothing": 4, "Appearance": 1,
    "Expression of emotion": 1, "Activity": 1,
}  # fmt: skip


def test_the_papers_counts():
    scheme = of.obygaze_scheme()
    paper = [concept for concept in scheme.concepts if concept.source == "paper"]
    assert {concept.name: len(concept.instances) for concept in paper} == PAPER
    assert sum(len(concept.instances) for concept in paper) == 22
    assert len(scheme.sub_constructs) == 5
    assert all(scheme.sub_constructs.values())
    assert all(concept.about and concept.examples for concept in paper)
    assert tuple(concept.name for concept in paper) == scheme.visual_concepts
    # No instance twice, and what MObyGaze adds is not the paper's.
    texts = [t for c in scheme.concepts for t in (*c.instances, *c.further, *c.examples)]
    assert [text for text, count in Counter(texts).items() if count > 1] == []


def test_a_manifest_holds_the_names_only_and_has_the_same_scheme():
    scheme = of.obygaze_scheme()
    back = LabelScheme.from_json(json.loads(json.dumps(scheme.to_json())))
    assert back == scheme
    assert hash(back.concepts) == hash(scheme.concepts)
    assert "instances" not in json.dumps(scheme.to_json())


def test_the_command_prints_all_or_one_concept(obygaze, tmp_path):
    text = obygaze("manifests", "thesaurus").output
    for line in ("male gaze: a man's point of view on a woman", "voyeurism", "Narratology"):
        assert line in text
    assert max(map(len, text.splitlines())) <= 100
    look = obygaze("manifests", "thesaurus", "look").output
    assert "a gaze that is not returned" in look
    assert "Body" not in look
    assert "male gaze" not in look
    refused(obygaze("manifests", "thesaurus", "Lok"), "did you mean Look?")
    whole = json.loads(obygaze("manifests", "thesaurus", "--json").stdout)
    assert (len(whole["sub_constructs"]), len(whole["levels"]), len(whole["concepts"])) == (
        5,
        4,
        12,
    )
    used = {concept["source"] for concept in whole["concepts"]}
    assert used <= set(whole["sources"])
    path = tmp_path / "guidelines.csv"
    assert obygaze("manifests", "thesaurus", "--csv", path).exit_code == 0
    rows = csv_rows(path)
    papers = Counter(r["of"] for r in rows if (r["kind"], r["source"]) == ("instance", "paper"))
    assert papers == PAPER
    assert obygaze("manifests", "thesaurus", "--csv", path).exit_code == 1  # it exists
    write(tmp_path / "Juno.eaf", "an annotator's")
    before = contents(tmp_path)
    for name in ("Juno.eaf", "new.EAF"):
        result = obygaze("manifests", "thesaurus", "--csv", tmp_path / name, "--overwrite")
        refused(result, ".csv", code=result.exit_code or 1)
        assert contents(tmp_path) == before


def annotate(template, path):
    """Fill the template as ELAN does: values of the vocabularies, by their ids."""
    root = ElementTree.parse(template).getroot()
    vocabulary = {
        cv.get("CV_ID"): [entry.findtext("CVE_VALUE") for entry in cv.iter("CV_ENTRY_ML")]
        for cv in root.iter("CONTROLLED_VOCABULARY")
    }
    order, number = root.find("TIME_ORDER"), 0
    tiers = {tier.get("TIER_ID"): tier for tier in root.iter("TIER")}
    last = len(vocabulary["levels"]) - 1
    for at, level in enumerate(vocabulary["levels"]):
        for time in (1000 * at, 1000 * at + 900):
            number += 1
            ElementTree.SubElement(
                order, "TIME_SLOT", TIME_SLOT_ID=f"ts{number}", TIME_VALUE=str(time)
            )
        slots = {"TIME_SLOT_REF1": f"ts{number - 1}", "TIME_SLOT_REF2": f"ts{number}"}
        note(tiers["annotator1"], "ALIGNABLE_ANNOTATION", f"a{at}", str(level), slots)
        previous = {}
        for index, concept in enumerate(vocabulary["concepts"] if at == last else []):
            name = f"c{index}"
            refers = {"ANNOTATION_REF": f"a{at}", **previous}
            note(tiers["annotator1, concepts"], "REF_ANNOTATION", name, str(concept), refers)
            previous = {"PREVIOUS_ANNOTATION": name}
    refers = {"ANNOTATION_REF": "a0"}
    note(tiers["annotator1, comment"], "REF_ANNOTATION", "k", "credits", refers)
    ElementTree.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def note(tier, kind, name, value, attributes):
    parent = ElementTree.SubElement(tier, "ANNOTATION")
    element = ElementTree.SubElement(parent, kind, {"ANNOTATION_ID": name, **attributes})
    ElementTree.SubElement(element, "ANNOTATION_VALUE").text = value


def test_a_film_annotated_from_the_template_has_no_remarks(obygaze, tmp_path):
    template = tmp_path / "obygaze.etf"
    assert obygaze("manifests", "thesaurus", "--elan", template).exit_code == 0
    annotate(template, tmp_path / "myfilm.eaf")
    result = obygaze("annotations", "import", "elan", tmp_path / "myfilm.eaf", "-o", tmp_path / "t")
    assert result.exit_code == 0, result.output
    timelines = of.Timelines.load(tmp_path / "t")
    assert timelines.remarks == ()
    assert timelines.annotators == ["annotator1"]
    assert [segment.level for segment in timelines.segments] == ["EN", "HN", "NS", "S"]
    assert timelines.segments[-1].concepts == of.obygaze_scheme().concept_names
    assert timelines.segments[0].comment == "credits"


def test_another_program_reads_the_template(obygaze, tmp_path):
    template = tmp_path / "obygaze.etf"
    obygaze("manifests", "thesaurus", "--elan", template)
    read = Eaf(str(template))
    assert set(read.get_tier_names()) == {
        "annotator1",
        "annotator1, concepts",
        "annotator1, comment",
    }
    entries = read.get_controlled_vocabulary_names()
    assert set(entries) == {"levels", "concepts"}
    refused(obygaze("manifests", "thesaurus", "--elan", tmp_path / "x.eaf"), ".etf", code=2)
    other = tmp_path / "other.etf"
    assert obygaze("manifests", "thesaurus", "--elan", other).exit_code == 0
    assert other.read_bytes() == template.read_bytes()
    refused(obygaze("manifests", "thesaurus", "--elan", other))
