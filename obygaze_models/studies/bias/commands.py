"""``obygaze bias``: measures of bias in embeddings, captions and labels."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import obygaze_features as of
from obygaze_features.common.cli import (
    ADDRESS,
    echo,
    exit_if,
    folder_argument,
    json_option,
    overwrite_option,
    show,
)
from obygaze_features.common.figures import SUFFIXES, save_figure
from obygaze_features.common.files import refuse_to_overwrite, require_suffix, write_text
from obygaze_features.common.tables import format_rows
from obygaze_models.commands._shared import echo_warnings, path_option

if TYPE_CHECKING:
    from obygaze_models.studies.bias.measured import Measured


@click.group()
def bias() -> None:
    """Measure bias in embeddings, captions and labels.

    \b
    Example:
      obygaze bias eat emotion --store stores/sobem.zarr --texts stores/prompts.zarr
    """


def _with_outputs(command: Callable[..., Measured]) -> Callable[..., None]:
    """Add the options ``-o`` (repeatable), ``--overwrite`` and ``--json`` to a command."""

    @path_option(
        "-o",
        "--output",
        "outputs",
        multiple=True,
        help="A .csv table, or an .svg, .pdf or .png figure; repeatable.",
    )
    @overwrite_option
    @json_option
    @wraps(command)
    def run(outputs: tuple[Path, ...], overwrite: bool, as_json: bool, **options: Any) -> None:
        for path in outputs:
            require_suffix(path, ".csv", *SUFFIXES)
            refuse_to_overwrite(path, overwrite=overwrite)

        measured = command(**options)
        if as_json:
            show(measured.to_dict(), as_json)
        else:
            show({"rows": measured.rows, **measured.about})
        echo_warnings(measured.notes)

        for path in dict.fromkeys(outputs):
            if path.suffix in SUFFIXES:
                save_figure(measured.figure(), path, overwrite=overwrite)
            else:
                write_text(path, format_rows(measured.rows, number=str))
            echo(f"Wrote {path}", err=as_json)
        exit_if(measured.about.get("left_out_tests"))

    return run


@bias.command()
@click.argument("battery")
@click.option("--store", type=ADDRESS, required=True, help="Embeddings of X and Y.")
@click.option("--texts", type=ADDRESS, help="Embeddings of A and B, if in a separate store.")
@path_option("--manifest", "manifests", multiple=True, help="A manifest with columns to select by.")
@click.option("--skip-missing", is_flag=True, help="Leave out items without an embedding.")
@_with_outputs
def eat(
    battery: str,
    store: Path | str,
    texts: Path | str | None,
    manifests: tuple[Path, ...],
    skip_missing: bool,
) -> Measured:
    """Run embedding association tests, such as WEAT.

    BATTERY is emotion, professions, or your own JSON file. Each test asks whether the items of X
    are closer to A than to B, compared with the items of Y. Without Y, each item of X is tested
    separately. Embeddings come from a store, NAME.vec or NAME.csv. The shipped batteries select
    images by profession and gender, or by emotion, intensity and condition, and texts by stimulus:
    columns of a store's items, or of --manifest.

    \b
    Example:
      obygaze bias eat professions --store clip.zarr -o professions.csv -o professions.svg
    """
    from obygaze_models.studies.bias.battery import read_battery, run_battery
    from obygaze_models.studies.bias.inputs import manifest_columns, open_vectors

    loaded = [of.Manifest.load(path) for path in manifests]
    return run_battery(
        read_battery(battery),
        open_vectors(store, manifests=loaded),
        None if texts is None else open_vectors(texts, manifests=loaded),
        tables=[manifest_columns(manifest) for manifest in loaded],
        skip_missing=skip_missing,
    )


@bias.command()
@folder_argument("captions")
@click.option(
    "--minimum",
    type=click.IntRange(min=0),
    default=100,
    help="Leave out words that occur fewer times than this.",
)
@path_option(
    "--lexicon", help="Your own words and groups, in a JSON file.  [default: those of Wolfe et al.]"
)
@_with_outputs
def captions(captions: Path, minimum: int, lexicon: Path | None) -> Measured:
    """Count emotion words per 1000 CAPTIONS for groups of images.

    CAPTIONS is a CSV table (image_id, condition, emotion, caption, and optionally intensity), or a
    folder of files with one caption per line. A file name such as ann_AN1_NO_3.txt gives the
    subject, emotion (AN, SA, HA, NE) and intensity, condition (NO, O) and number. In each group,
    the words of the group's emotion are counted; in neutral captions, the words of every emotion.

    \b
    Example:
      obygaze bias captions captions.csv -o rates.csv -o rates.svg
    """
    from obygaze_models.studies.bias.captions import emotion_rates, read_captions
    from obygaze_models.studies.bias.inputs import read_lexicon, shipped_lexicon

    words = shipped_lexicon("emotions") if lexicon is None else read_lexicon(lexicon)
    return emotion_rates(read_captions(captions, words), words, minimum=minimum)


@bias.command()
@folder_argument("table")
@click.option("--rater", "raters", multiple=True, help="Use only this rater's column; repeatable.")
@_with_outputs
def ratings(table: Path, raters: tuple[str, ...]) -> Measured:
    """Show the share of images that raters label as sexualised.

    TABLE has the columns image_id and group, and a column of labels for each rater (1 or 0, yes or
    no, or one of drawings, hentai, neutral, porn, sexy). It may also have five columns with a
    classifier's probabilities of these classes: the classifier is then another rater. Porn, sexy
    and hentai count as sexualised. With two or more raters, Cronbach's alpha measures their
    reliability.

    \b
    Example:
      obygaze bias ratings labels.csv -o shares.csv -o shares.svg
    """
    from obygaze_models.studies.bias.ratings import ratings

    return ratings(table, raters)


@bias.command("gender-score")
@folder_argument("scores")
@_with_outputs
def gender_score(scores: Path) -> Measured:
    """Measure the gender score of captions and objects.

    SCORES is a CSV table, your own or from obygaze features caption-scores, with the columns
    object, confidence, probability and similarity, and a group (man or woman) or a caption. Scores
    of both variants of a caption are in probability_man, similarity_man, probability_woman and
    similarity_woman. Without scores, only co-occurrence is counted. There is a row for each object
    and measure, and for all objects; --json also has the scores of each caption.

    \b
    Example:
      obygaze bias gender-score scores.csv -o objects.csv -o objects.svg
    """
    from obygaze_models.studies.bias.gender_score import gender_scores

    return gender_scores(scores)
