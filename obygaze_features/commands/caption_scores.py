"""`obygaze features caption-scores`: how likely captions are, and how similar to their objects."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from obygaze_features.commands._shared import MAX_FAILURES_SHOWN, PARTLY_DONE
from obygaze_features.common.cli import echo_json, folder_argument, json_option, output_options
from obygaze_features.common.text import counted, join_some


@click.command("caption-scores")
@folder_argument("table")
@output_options("The CSV file of scores; a JSON file of the same name says which models made them.")
@click.option(
    "--language-model",
    metavar="MODEL",
    default="gpt2",
    show_default=True,
    help="gpt2, gpt2-medium, gpt2-large, gpt2-xl, distilgpt2, OWNER/NAME on the Hugging Face hub, "
    "or a folder.",
)
@click.option(
    "--sentence-encoder",
    metavar="MODEL",
    default="roberta-large-nli-stsb-mean-tokens",
    show_default=True,
    help="A name that sentence-transformers publishes, such as all-mpnet-base-v2, OWNER/NAME, or "
    "a folder.",
)
@click.option(
    "--variants",
    "with_variants",
    is_flag=True,
    help="Also each caption with man, and with woman, in place of [MASK] or of its gender word.",
)
@click.option("--device", help="cpu, cuda, cuda:1 or mps; by default a GPU if there is one.")
@json_option
@click.pass_context
def caption_scores(
    ctx: click.Context,
    table: Path,
    output: Path,
    language_model: str,
    sentence_encoder: str,
    with_variants: bool,
    device: str | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Score captions with a language model and a sentence encoder, for obygaze bias gender-score.

    TABLE is a CSV file with the columns id, caption, object (the label of what is in the picture)
    and confidence (the classifier's, of that label); others are kept. It gets the columns
    probability (the mean probability of the caption's tokens) and similarity (of caption and
    object). With --variants it gets those of the caption with man and with woman instead of its
    gender word; captions that have none are named and left out.

    Captions that the language model cannot read whole are named and left out; the exit code is
    then 3.

    \b
    Examples:
      obygaze features caption-scores captions.csv -o scores.csv
      obygaze features caption-scores captions.csv -o scores.csv --variants \\
          --language-model distilgpt2 --sentence-encoder all-mpnet-base-v2
    """
    from obygaze_features.common.files import refuse_to_overwrite
    from obygaze_features.language import load_language_model, load_sentence_encoder
    from obygaze_features.language.caption_scores import read_captions, score_captions

    refuse_to_overwrite(output, overwrite=overwrite)
    captions = read_captions(table, with_variants=with_variants)
    model = load_language_model(language_model, device)
    encoder = load_sentence_encoder(sentence_encoder, device)
    click.echo(f"Scoring with {model.name} and {encoder.name} ({model.device})", err=True)
    result = score_captions(captions, output, model, encoder, overwrite=overwrite)
    if as_json:
        echo_json(asdict(result))
    limit = encoder.max_tokens
    for items, reason in (
        (
            result.without_variants,
            "left out: no noun for a person, or other words of gender that would have to change",
        ),
        (result.cut, f"of which {encoder.name} reads only the first {limit} tokens"),
        (result.too_long, f"left out: longer than {model.name} reads"),
    ):
        if items:
            count = counted(len(items), "caption")
            click.echo(f"{count} {reason}: {join_some(items, MAX_FAILURES_SHOWN)}", err=True)
    if "confidence" not in captions.table.columns:
        click.echo("no column confidence; obygaze bias gender-score needs it", err=True)
    click.echo(f"{counted(result.scored, 'caption')} scored -> {output}", err=as_json)
    if result.too_long:
        ctx.exit(PARTLY_DONE)
