"""The table of caption scores, its variants, and what is refused."""

from __future__ import annotations

import csv
import json
import logging
from pathlib import Path

import numpy as np
import pytest

from obygaze_features.language.caption_scores import make_variants
from obygaze_models.bias.gender_score import gender_score
from tests.language.test_language_models import embeddings_by_transformers, token_probabilities

HEAD = "id,caption,object,confidence,group,note\n"
CAPTIONS = """\
a,a man riding a motorcycle on a road,motor scooter,.2183,man,first
b,"two women sitting on a sofa, smiling",couch,.9,woman,
c,a man and a woman,couch,1,woman,
"""
LONG = "a road " * 40


@pytest.fixture
def score(obygaze, gpt2, encoder, tmp_path):
    """Scores a table of this content; gives the result, and the file."""

    def score(content, *options, output="out.csv", table="captions.csv"):
        if content is not None:
            (tmp_path / table).write_text(content)
        models = ["--language-model", gpt2, "--sentence-encoder", encoder, "--device", "cpu"]
        files = [tmp_path / table, "-o", tmp_path / output]
        return obygaze("features", "caption-scores", *files, *models, *options), files[-1]

    return score


def rows_of(path: Path) -> dict[str, dict[str, str]]:
    with path.open(newline="") as file:
        return {row["id"]: row for row in csv.DictReader(file)}


def check_scores(row, text, suffix, gpt2, encoder):
    mean = np.mean(token_probabilities(gpt2, text))
    np.testing.assert_allclose(float(row[f"probability{suffix}"]), mean, rtol=1e-5)
    first, other = embeddings_by_transformers(encoder, [text, row["object"]])
    np.testing.assert_allclose(float(row[f"similarity{suffix}"]), first @ other, atol=1e-6)


def test_captions_get_a_probability_and_a_similarity(score, gpt2, encoder, tmp_path):
    result, out = score(HEAD + CAPTIONS)
    assert (result.exit_code, result.stdout) == (0, f"3 captions scored -> {out}\n")
    rows = rows_of(out)
    assert list(rows["a"]) == [*HEAD.strip().split(","), "probability", "similarity"]
    assert rows["a"]["note"] == "first"
    for row in rows.values():
        check_scores(row, row["caption"], "", gpt2, encoder)
    record = json.loads(out.with_suffix(".json").read_text())
    weights = {record[kind]["weights_sha256"] for kind in ("language_model", "sentence_encoder")}
    assert len(weights) == 2
    # Nothing is replaced without --overwrite.
    again, _ = score(None)
    assert (again.exit_code, "exists already" in again.stderr) == (1, True)
    assert score(None, "--overwrite")[0].exit_code == 0
    out.unlink()
    again, _ = score(None)
    assert (again.exit_code, "out.json exists already" in again.stderr) == (1, True)
    assert score(None, output="scores.json")[0].exit_code == 2


def test_variants_have_scores_and_a_gender_score(score, obygaze, gpt2, encoder):
    result, out = score(HEAD + CAPTIONS, "--variants")
    assert result.exit_code == 0
    assert "1 caption left out: no noun for a person, or other words of gender" in result.stderr
    rows = rows_of(out)
    assert list(rows) == ["a", "b"]
    assert rows["b"]["caption_man"] == "two men sitting on a sofa, smiling"
    assert rows["b"]["caption_woman"] == rows["b"]["caption"]
    for row in rows.values():
        for suffix in ("_man", "_woman"):
            check_scores(row, row[f"caption{suffix}"], suffix, gpt2, encoder)
    row = rows["a"]
    assert row["probability"] == row["probability_man"] != row["probability_woman"]

    result = obygaze("bias", "gender-score", out, "--json")
    assert result.exit_code == 0, result.output
    values = [float(row[name]) for name in ("probability_man", "similarity_man", "confidence")]
    by_hand = values[0] ** (((1 - values[1]) / (1 + values[1])) ** (1 - values[2]))
    value = float(gender_score(*map(np.array, values)))
    assert value == pytest.approx(by_hand)
    assert repr(value)[:12] in result.stdout


def test_a_mask_is_filled_and_is_no_caption_itself(score):
    content = f"{HEAD}m,a [MASK] with his dog,dog,.5,man,\n{CAPTIONS}"
    result, out = score(content, "--variants", "--json")
    summary = json.loads(result.stdout)
    assert (summary["scored"], summary["without_variants"]) == (3, ["c"])
    row = rows_of(out)["m"]
    assert row["caption_man"] == "a man with his dog"
    assert row["caption_woman"] == "a woman with his dog"
    assert "probability" not in row


@pytest.mark.parametrize(
    ("caption", "variants"),
    [
        ("A boy on a road", ("A man on a road", "A woman on a road")),
        ("A MAN on a road", ("A MAN on a road", "A WOMAN on a road")),
        ("the lady's hat", ("the man's hat", "the woman's hat")),
        ("female surfers and girls", ("male surfers and men", "female surfers and women")),
        ("a human at a womans' shop", None),
        ("a man and his dog", None),
        ("a girl and her mother", None),
        ("a man and a woman", None),
        ("a dog", None),
    ],
)
def test_only_words_that_can_be_exchanged_are(caption, variants):
    pair = make_variants(caption)
    assert (pair and (pair.man, pair.woman)) == variants


SLIPS = [
    ("id,caption\na,x\n", "line 1: no column 'object'"),
    (f"{HEAD}a,x,y,.5,man,\na,x,y,.5,man,\n", "line 3: duplicate id 'a'"),
    (HEAD, "no captions"),
    (f"{HEAD} ,x,y,.5,man,\n", "line 2: an empty id"),
    (f"{HEAD}a,,y,.5,man,\n", "line 2: a has no caption"),
    (f"{HEAD}a,x, ,.5,man,\n", "line 2: a has no object"),
    (f"{HEAD}a,x,y,1.2,man,\n", "line 2: the confidence of a must be a number from 0"),
    (f"{HEAD}a,x,y,nan,man,\n", "from 0 to 1 (got 'nan')"),
    (f"{HEAD}a,x,y,,man,\n", "from 0 to 1 (got '')"),
    (f"{HEAD}a,a [MASK],y,.5,man,\n", "a has [MASK]; fill it in with --variants"),
    ("id,caption,object,similarity\na,x,y,.5\n", "the column 'similarity' would be"),
    (f"{HEAD}a,{LONG},y,.5,man,\nb,{LONG},y,.5,man,\n", "2 captions, all longer than gpt2 reads "
     "(64 tokens)"),
    ("id,caption,object\na,a dog,dog\n", "no caption has variants with man and woman"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "facts"), SLIPS)
def test_a_table_not_understood_is_refused_in_one_line(score, content, facts):
    result, out = score(content, *(["--variants"] if "a dog" in content else []))
    assert result.exit_code == 1
    assert facts in result.stderr
    assert result.stderr.count("Error: ") == 1
    assert not out.exists()


def test_captions_that_are_too_long_are_named(score, caplog, monkeypatch):
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    result, out = score(f"{HEAD}{CAPTIONS}long,{LONG},road,.5,man,\n")
    assert result.exit_code == 3
    assert "1 caption left out: longer than gpt2 reads: long" in result.stderr
    assert "Token indices" not in caplog.text  # transformers has nothing to add
    assert result.stderr.count("long") == 2
    assert list(rows_of(out)) == ["a", "b", "c"]


def test_the_captions_themselves_are_never_replaced(score, tmp_path):
    for name in ("mine.csv", "mine.json"):
        options = {"output": "mine.csv", "table": name}
        result, _ = score(HEAD + CAPTIONS, "--overwrite", "--variants", **options)
        assert result.exit_code == 2
        assert f"{name} is the table of captions; choose another output" in result.stderr
        assert (tmp_path / name).read_text() == HEAD + CAPTIONS
