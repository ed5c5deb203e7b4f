"""The thesaurus: the counts of the paper's table 1, its texts, and ELAN's template read back."""

import json
import re
from collections import Counter
from dataclasses import asdict, replace

import pytest
from pympi.Elan import Eaf

import obygaze_features as of
from obygaze_features.manifests.labels import LabelScheme, choose_scheme
from obygaze_features.manifests.thesaurus import thesaurus_rows
from tests.kit.files import refused, write

#: The paper's concepts in the table's order, and how many instances it has of each.
PAPER = {
    "Type of shot": 3, "Look": 2, "Body": 4, "Posture": 6, "Clothing": 4, "Appearance": 1,
    "Expression of emotion": 1, "Activity": 1,
}  # fmt: skip


def test_the_thesaurus_has_the_papers_counts():
    scheme = of.obygaze_scheme()
    assert "instances" not in json.dumps(scheme.to_json())  # a manifest contains only the names
    paper = [concept for concept in scheme.concepts if concept.source == "paper"]
    assert {concept.name: len(concept.instances) for concept in paper} == PAPER
    assert sum(len(concept.instances) for concept in paper) == 22
    assert all(concept.about and concept.examples for concept in paper)
    assert tuple(concept.name for concept in paper) == scheme.visual_concepts
    # No instance twice, and what MObyGaze adds is not the paper's.
    texts = [t for c in scheme.concepts for t in (*c.instances, *c.further, *c.examples)]
    assert [text for text, count in Counter(texts).items() if count > 1] == []


def test_other_texts_for_the_papers_levels_are_kept():
    scheme = of.obygaze_scheme()
    own = replace(scheme, levels=(replace(scheme.levels[0], about="ours"), *scheme.levels[1:]))
    assert LabelScheme.from_json(own.to_json()).levels[0].about == "ours"
    assert LabelScheme.from_json(scheme.to_json()).levels == scheme.levels
    assert LabelScheme.from_json(scheme.to_json()).levels[0].about == scheme.levels[0].about


def test_the_command_prints_the_scheme(obygaze):
    text = obygaze("manifests", "thesaurus").output
    for fact in ("voyeurism", "Narratology", "infantilism / animalisation", "(section 4.1)"):
        assert fact in text
    # The paper's levels are not degrees of an annotator's confidence.
    about = {level.code: level.about for level in of.obygaze_scheme().levels}
    assert "without an effect" in about["HN"]
    assert "does not completely fit" in about["NS"]
    assert "result in objectification" in about["S"]
    assert not [text for text in about.values() if re.search(r"\b(un)?sure\b", text)]


def test_only_the_papers_scheme_has_its_sub_constructs(tmp_path):
    kinds = Counter(row["kind"] for row in thesaurus_rows(of.obygaze_scheme()))
    assert (kinds["sub-construct"], kinds["note"]) == (5, 1)
    own = choose_scheme(write(tmp_path / "mood.toml", OWN))
    assert {row["kind"] for row in thesaurus_rows(own)} == {"level", "concept", "instance"}


OWN = """
levels = ["static", {code = "b", name = "busy: very", about = "much goes on"}]
concepts = ["crowd", {name = "cars", about = "on wheels", instances = ["a bus"]}]
"""


@pytest.mark.parametrize("options", [(), ("--levels", "mood.toml")], ids=["obygaze", "own"])
def test_a_film_annotated_from_the_template_has_no_remarks(obygaze, tmp_path, monkeypatch, options):
    monkeypatch.chdir(tmp_path)
    template, own = tmp_path / "own.etf", write(tmp_path / "mood.toml", OWN) if options else None
    assert obygaze("manifests", "thesaurus", "--elan", template, *options).exit_code == 0
    scheme, film = choose_scheme(own) or of.obygaze_scheme(), Eaf(str(template))
    concepts, comment = "annotator1, concepts", "annotator1, comment"
    assert set(film.get_tier_names()) == {"annotator1", concepts, comment}
    about = [{entry.name: entry.about for entry in scheme.levels}]
    about += [{c.name: "; ".join(filter(None, [c.about, *c.instances])) for c in scheme.concepts}]
    for name, entries in zip(("levels", "concepts"), about, strict=True):
        cells = film.get_cv_entries(name).values()
        assert {value: text for ((value, _, text),), _ in cells} == entries
    for number, level in enumerate(scheme.levels):
        film.add_annotation("annotator1", 1000 * number, 1000 * number + 900, level.name)
    for concept in scheme.concepts:
        last = 1000 * len(scheme.levels) - 550
        film.add_ref_annotation(concepts, "annotator1", last, concept.name)
    film.add_ref_annotation(comment, "annotator1", 450, "credits")
    film.to_file(str(tmp_path / "myfilm.eaf"))
    assert asdict(of.Timelines.from_elan(tmp_path / "myfilm.eaf").scheme) == asdict(scheme)
    timelines = of.Timelines.from_elan(tmp_path / "myfilm.eaf", levels=own)
    assert (timelines.remarks, timelines.annotators) == ((), ["annotator1"])
    assert [segment.level for segment in timelines.segments] == list(scheme.codes)
    assert timelines.segments[-1].concepts == scheme.concept_names
    assert timelines.segments[0].comment == "credits"
    refused(obygaze("manifests", "thesaurus", "--elan", tmp_path / "x.eaf"), ".etf", code=2)
    refused(obygaze("manifests", "thesaurus", "--elan", template))
