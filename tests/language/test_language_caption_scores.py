"""The table of caption scores: what is in it, how it goes on, and what is refused."""

from __future__ import annotations

import csv
import json
import logging
from pathlib import Path

import numpy as np
import pytest

from obygaze_features.language.caption_scores import make_variants
from obygaze_models.bias.gender_score import gender_score
from tests.language.test_language_models import chances_of, embeddings_of

HEAD = "id,caption,object,confidence,group,note\n"
CAPTIONS = """\
a,a man riding a motorcycle on a road,motor scooter,.2183,man,first
b,"two women sitting on a sofa, smiling",couch,.9,woman,
c,a man and a woman,couch,1,woman,
"""


@pytest.fixture
def table(tmp_path) -> Path:
    path = tmp_path / "captions.csv"
    path.write_text(HEAD + CAPTIONS)
    return path


@pytest.fixture
def models(gpt2, encoder) -> list[object]:
    return ["--language-model", gpt2, "--sentence-encoder", encoder, "--device", "cpu"]


def rows_of(path: Path) -> dict[str, dict[str, str]]:
    with path.open(newline="") as file:
        return {row["id"]: row for row in csv.DictReader(file)}


def test_each_caption_gets_its_probability_and_similarity(
    obygaze, table, models, gpt2, encoder, tmp_path
):
    result = obygaze("features", "caption-scores", table, "-o", tmp_path / "out.csv", *models)
    assert (result.exit_code, result.stdout) == (
        0,
        f"3 captions scored -> {tmp_path / 'out.csv'}\n",
    )
    rows = rows_of(tmp_path / "out.csv")
    assert list(rows["a"]) == [*HEAD.strip().split(","), "probability", "similarity"]
    assert rows["a"]["note"] == "first"
    for row in rows.values():
        wanted = np.mean(chances_of(gpt2, row["caption"]))
        np.testing.assert_allclose(float(row["probability"]), wanted, rtol=1e-5)
        one, other = embeddings_of(encoder, [row["caption"], row["object"]])
        np.testing.assert_allclose(float(row["similarity"]), one @ other, atol=1e-6)
    record = json.loads((tmp_path / "out.json").read_text())
    assert (
        record["language_model"]["weights_sha256"] != record["sentence_encoder"]["weights_sha256"]
    )


def test_variants_are_scored_as_captions_of_their_own(
    obygaze, table, models, gpt2, encoder, tmp_path
):
    score = ["features", "caption-scores", table, "-o", tmp_path / "out.csv", "--variants", *models]
    result = obygaze(*score)
    assert result.exit_code == 0
    assert (
        "1 caption left out: no noun for a person, or other words of gender that would"
        in result.stderr
    )
    rows = rows_of(tmp_path / "out.csv")
    assert list(rows) == ["a", "b"]
    assert rows["b"]["caption_man"] == "two men sitting on a sofa, smiling"
    assert rows["b"]["caption_woman"] == rows["b"]["caption"]
    for row in rows.values():
        for who in ("man", "woman"):
            text = row[f"caption_{who}"]
            wanted = np.mean(chances_of(gpt2, text))
            np.testing.assert_allclose(float(row[f"probability_{who}"]), wanted, rtol=1e-5)
            one, other = embeddings_of(encoder, [text, row["object"]])
            np.testing.assert_allclose(float(row[f"similarity_{who}"]), one @ other, atol=1e-6)
    assert rows["a"]["probability"] == rows["a"]["probability_man"]
    assert rows["a"]["probability"] != rows["a"]["probability_woman"]


def test_what_is_masked_is_filled_and_is_no_caption_itself(obygaze, models, tmp_path):
    table = tmp_path / "masked.csv"
    table.write_text(f"{HEAD}m,a [MASK] with his dog,dog,.5,man,\n{CAPTIONS}")
    out = tmp_path / "out.csv"
    result = obygaze(
        "features", "caption-scores", table, "-o", out, "--variants", *models, "--json"
    )
    found = json.loads(result.stdout)
    assert (found["scored"], found["without_variants"]) == (3, ["c"])
    row = rows_of(out)["m"]
    assert (row["caption_man"], row["caption_woman"]) == (
        "a man with his dog",
        "a woman with his dog",
    )
    assert "probability" not in row


def test_gender_score_reads_the_table(obygaze, table, models, tmp_path):
    out = tmp_path / "out.csv"
    obygaze("features", "caption-scores", table, "-o", out, "--variants", *models)
    result = obygaze("bias", "gender-score", out, "--json")
    assert result.exit_code == 0, result.output
    row = rows_of(out)["a"]
    values = [float(row[name]) for name in ("probability_man", "similarity_man", "confidence")]
    score = gender_score(*map(np.array, values))
    by_hand = values[0] ** (((1 - values[1]) / (1 + values[1])) ** (1 - values[2]))
    assert float(score) == pytest.approx(by_hand)
    assert repr(float(score))[:12] in result.stdout


@pytest.mark.parametrize(
    ("caption", "filled"),
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
def test_only_words_that_can_be_exchanged_are(caption, filled):
    found = make_variants(caption)
    assert (found and (found.man, found.woman)) == filled


LONG = "a road " * 40


@pytest.mark.parametrize(
    ("content", "message"),
    [
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
        (f"{HEAD}a,{LONG},y,.5,man,\n", "1 caption, all longer than gpt2 reads (64 tokens)"),
        (f"{HEAD}a,{LONG},y,.5,man,\nb,{LONG},y,.5,man,\n", "2 captions, all longer than"),
    ],
)  # fmt: skip
def test_a_table_that_is_not_right_is_refused_in_one_line(
    obygaze, models, tmp_path, content, message
):
    table = tmp_path / "captions.csv"
    table.write_text(content)
    result = obygaze("features", "caption-scores", table, "-o", tmp_path / "out.csv", *models)
    assert result.exit_code == 1
    assert message in result.stderr
    assert result.stderr.count("Error: ") == 1
    assert not (tmp_path / "out.csv").exists()


def test_variants_of_nothing_are_refused(obygaze, models, tmp_path):
    (tmp_path / "dogs.csv").write_text("id,caption,object\na,a dog,dog\n")
    score = ["features", "caption-scores", tmp_path / "dogs.csv", "-o", tmp_path / "out.csv"]
    result = obygaze(*score, "--variants", *models)
    assert result.exit_code == 1
    assert "no caption has variants with man and woman" in result.stderr


def test_captions_that_are_too_long_are_named_and_left_out(
    obygaze, models, tmp_path, caplog, monkeypatch
):
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    table, out = tmp_path / "captions.csv", tmp_path / "out.csv"
    table.write_text(f"{HEAD}{CAPTIONS}long,{LONG},road,.5,man,\n")
    result = obygaze("features", "caption-scores", table, "-o", out, *models)
    assert result.exit_code == 3
    assert "1 caption left out: longer than gpt2 reads: long" in result.stderr
    assert "Token indices" not in caplog.text  # transformers has nothing to add
    assert result.stderr.count("long") == 2  # that it is longer, and which; and not what else is
    assert list(rows_of(out)) == ["a", "b", "c"]


def test_nothing_is_replaced_unasked(obygaze, table, models, tmp_path):
    (tmp_path / "out.json").write_text("mine")
    score = ["features", "caption-scores", table, "-o", tmp_path / "out.csv", *models]
    result = obygaze(*score)
    assert result.exit_code == 1
    assert "out.json exists already" in result.stderr
    assert obygaze(*score, "--overwrite").exit_code == 0
    assert obygaze(*score).exit_code == 1
    score[4] = tmp_path / "scores.json"
    assert obygaze(*score).exit_code == 2


def test_the_captions_themselves_are_never_replaced(obygaze, models, tmp_path):
    (tmp_path / "mine.json").write_text(HEAD + CAPTIONS)
    (tmp_path / "mine.csv").write_text(HEAD + CAPTIONS)
    for name in ("mine.csv", "mine.json"):
        result = obygaze("features", "caption-scores", tmp_path / name, "-o", tmp_path / "mine.csv",
                       "--overwrite", "--variants", *models)  # fmt: skip
        assert result.exit_code == 2
        assert f"{name} is the table of captions; choose another output" in result.stderr
        assert (tmp_path / name).read_text() == HEAD + CAPTIONS
