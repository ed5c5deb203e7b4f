"""``obygaze bias captions``: emotion words in captions, by group of images."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from obygaze_features.common.cli import (
    echo_json,
    folder_argument,
    json_option,
    overwrite_option,
)
from obygaze_models.commands.bias_outputs import check_outputs, outputs_option, write_outputs

if TYPE_CHECKING:
    from obygaze_models.bias.captions import Rate, Rates

__all__ = ["captions"]


@click.command()
@folder_argument("captions")
@click.option(
    "--minimum",
    type=click.IntRange(min=0),
    default=100,
    show_default=True,
    help="Leave out words that are seen less often in all captions together.",
)
@click.option(
    "--all-words",
    is_flag=True,
    help="Count each emotion's words in each group, not in that of the emotion alone.",
)
@click.option(
    "--lexicon",
    type=click.Path(path_type=Path),
    help="Words and groups of your own, in a JSON file.  [default: the paper's]",
)
@outputs_option
@overwrite_option
@json_option
def captions(
    captions: Path,
    minimum: int,
    all_words: bool,
    lexicon: Path | None,
    outputs: tuple[Path, ...],
    overwrite: bool,
    as_json: bool,
) -> None:
    """Count emotion words per 1000 CAPTIONS of each group of images.

    CAPTIONS are a CSV table (image_id, condition, emotion, caption, and intensity if need be), or a
    folder of files such as ann_AN1_NO_3.txt, one caption a line: subject, emotion (AN, SA, HA) and
    intensity, condition (NO, O), number. In neutral captions (ann_NE_NO_3.txt) the words of each
    emotion are counted, for comparison.

    \b
    Examples:
      obygaze bias captions captions.csv -o rates.csv -o rates.svg
      obygaze bias captions sobem-captions/ --minimum 50 --json
    """
    from obygaze_features.common.text import counted
    from obygaze_models.bias.captions import emotion_rates, read_captions
    from obygaze_models.bias.figures import rates_figure
    from obygaze_models.bias.lexicon import read_lexicon, shipped_lexicon

    check_outputs(outputs, overwrite=overwrite)
    words = shipped_lexicon("emotions") if lexicon is None else read_lexicon(lexicon)
    images = read_captions(captions, words)
    found = emotion_rates(images, words, minimum=minimum, all_words=all_words)
    several = any(rate.words != rate.emotion for rate in found.rates)
    content = {
        "images": sum(image.captions > 0 for image in images),
        "captions": sum(image.captions for image in images),
        "blank": sum(image.blank for image in images),
        "lexicon": words.name,
        **asdict(found),
    }
    if as_json:
        echo_json(content)
    else:
        click.echo(
            f"{counted(content['captions'], 'caption')} of "
            f"{counted(content['images'], 'image')}, "
            f"words of {words.name}"
        )
        _echo(found, several)
    for note in _notes(found, content["blank"]):
        click.secho(f"NOTE: {note}", fg="yellow", err=True)
    write_outputs(
        outputs,
        [_flat(rate, several) for rate in found.rates],
        content,
        lambda: rates_figure(found),
        overwrite=overwrite,
        quiet=as_json,
    )


def _flat(rate: Rate, several: bool) -> dict[str, Any]:
    row = asdict(rate)
    return row if several else {name: of for name, of in row.items() if name != "words"}


def _notes(found: Rates, blank: int) -> Iterator[str]:
    from obygaze_features.common.text import counted
    from obygaze_models.bias.captions import INTENSITIES

    if blank:
        yield f"{counted(blank, 'blank line or cell', 'blank lines or cells')} left out: no caption"
    said = dict.fromkeys(rate.intensity for rate in found.rates)
    if not {"high", "low"}.isdisjoint(said) and not set(INTENSITIES).isdisjoint(said):
        yield f"intensities are called {', '.join(said)}; each is counted apart, write them alike"
    for name in dict.fromkeys(rate.words for rate in found.rates):
        if not found.counted[name]:
            yield (
                f"no word of {name} is seen {counted(found.minimum, 'time')}, so that its rates "
                "say nothing; lower --minimum to count them"
            )


def _echo(found: Rates, several: bool) -> None:
    from obygaze_features.common.tables import align

    header = ["emotion", "intensity", "condition", *(["words of"] if several else [])]
    rows = [
        [
            rate.emotion,
            rate.intensity or "-",
            rate.condition,
            *([rate.words] if several else []),
            *_numbers(rate, bool(found.counted[rate.words])),
        ]
        for rate in found.rates
    ]
    click.echo(align([*header, "count", "captions", "per 1000", "95%"], rows, left=len(header)))
    for name in dict.fromkeys(rate.words for rate in found.rates):
        left_out = found.left_out[name].items()
        if said := ", ".join(f"{word} {count:,}" for word, count in left_out if count):
            click.echo(f"left out of {name}, seen fewer than {found.minimum} times: {said}")


def _numbers(rate: Rate, counted: bool) -> list[str]:
    """Count, captions, rate and interval; of words that are all left out there are no rates."""
    captions = f"{rate.captions:,}"
    if not counted:
        return ["-", captions, "-", "-"]
    between = "-" if rate.low is None else f"{rate.low:.2f} to {rate.high:.2f}"
    return [f"{rate.count:,}", captions, f"{rate.rate:.2f}", between]
