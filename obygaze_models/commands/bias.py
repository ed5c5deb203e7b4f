"""``obygaze bias``: measures of bias in embeddings, captions and labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

import obygaze_features as of
from obygaze_features.common.cli import (
    ADDRESS,
    echo,
    echo_json,
    folder_argument,
    json_option,
    overwrite_option,
)
from obygaze_features.common.figures import SUFFIXES, save_figure
from obygaze_features.common.files import refuse_to_overwrite, to_json, write_text
from obygaze_features.common.tables import format_rows
from obygaze_features.errors import UsageError, translate
from obygaze_models.commands._shared import (
    PARTLY_DONE,
    echo_warnings,
    option,
    path_option,
    seed_option,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from obygaze_models.bias.battery import Battery, Selector


@click.group()
def bias() -> None:
    """Measure bias in embeddings, captions and labels.

    \b
    Example:
      obygaze bias eat emotion --store stores/sobem.zarr --texts stores/prompts.zarr
    """


class _Measured(Protocol):
    """A command's result, which can be printed or written as a table, JSON or a figure."""

    def describe(self) -> str: ...
    def notes(self) -> Iterable[str]: ...
    def rows(self) -> list[dict[str, Any]]: ...
    def to_dict(self) -> dict[str, Any]: ...
    def figure(self) -> Figure: ...


def _with_outputs(command: Callable[..., _Measured]) -> Callable[..., None]:
    """Add the options ``-o`` (repeatable), ``--overwrite`` and ``--json`` to a command."""

    @wraps(command)
    def run(outputs: tuple[Path, ...], overwrite: bool, as_json: bool, **options: Any) -> None:
        from obygaze_models.bias.battery import BatteryResults

        for path in outputs:
            if path.suffix not in (suffixes := (".csv", ".json", *SUFFIXES[::-1])):
                raise UsageError(f"{path}: unknown suffix. Use one of {', '.join(suffixes)}")
            refuse_to_overwrite(path, overwrite=overwrite)
        measured = command(**options)
        if as_json:
            echo_json(measured.to_dict())
        else:
            echo(measured.describe())
        echo_warnings(measured.notes(), heading="NOTE")
        for path in dict.fromkeys(outputs):
            if path.suffix in SUFFIXES:
                save_figure(measured.figure(), path, overwrite=overwrite)
            elif path.suffix == ".json":
                write_text(path, to_json(measured.to_dict()))
            else:
                write_text(path, format_rows(measured.rows(), number=str))
            echo(f"Wrote {path}", err=as_json)
        context = click.get_current_context()
        if not outputs and not as_json:
            name = context.info_name
            echo(f"next: add -o {name}.csv -o {name}.svg to keep the table and its figure")
        if isinstance(measured, BatteryResults) and measured.left_out:
            context.exit(PARTLY_DONE)

    text = "A .csv or .json table, or an .svg, .pdf or .png figure; repeatable."
    output = path_option("-o", "--output", "outputs", multiple=True, help=text)
    return output(overwrite_option(json_option(run)))


@bias.command()
@click.argument("battery", required=False)
@click.option("--store", type=ADDRESS, required=True, help="Embeddings of X and Y; see above.")
@click.option("--texts", type=ADDRESS, help="Embeddings of A and B, if in a separate store.")
@path_option("--manifest", "manifests", multiple=True, help="A manifest with columns to select by.")
@click.option(
    "--sets",
    multiple=True,
    metavar="NAME=SET",
    help="The sets x=, y=, a= and b= of a single test, instead of a battery; see above.",
)
@option("--array", default="native", help="The array of --store to read.")
@option(
    "--ddof",
    type=click.IntRange(0, 1),
    default=1,
    help="Use the standard deviation of a sample (1) or of a population (0).",
)
@option(
    "--p",
    type=click.Choice(["auto", "exact", "sampled", "normal"]),
    default="auto",
    help="How to compute p; auto is exact for up to 200,000 partitions.",
)
@option(
    "--samples", type=click.IntRange(min=1), default=100_000, help="Number of random partitions."
)
@seed_option
@click.option("--published", metavar="MODEL", help="Show this model's published numbers.")
@click.option("--skip-missing", is_flag=True, help="Leave out items without an embedding.")
@_with_outputs
def eat(
    battery: str | None,
    store: Path | str,
    texts: Path | str | None,
    manifests: tuple[Path, ...],
    sets: tuple[str, ...],
    array: str,
    published: str | None,
    skip_missing: bool,
    **settings: Any,
) -> _Measured:
    """Run embedding association tests, such as WEAT.

    BATTERY is emotion, professions, or your own JSON file. Each test asks whether the items of X
    are closer to A than to B, compared with the items of Y. For --sets, a set is a list of ids
    (x=doc,nurse), columns with values (x=gender:woman,profession:science|medicine), or a file with
    one id per line (x=@women.txt). Without y, each item of x is tested separately. The columns come
    from --store or --manifest. Embeddings come from a store, NAME.vec, NAME.csv, or the concepts of
    a saved bottleneck.

    \b
    Examples:
      obygaze bias eat emotion --store stores/sobem.zarr --texts stores/prompts.zarr
      obygaze bias eat professions --store clip.zarr -o professions.csv -o professions.svg
      obygaze bias eat --store glove.vec --sets x=rose,lily --sets y=ant,wasp \\
        --sets a=love,peace --sets b=hatred,filth
      obygaze bias eat --store models/tree --texts prompts.zarr --sets x=Look,Body \\
        --sets a=stimulus:nude --sets b=stimulus:dressed
    """
    from obygaze_models.bias.association import Settings
    from obygaze_models.bias.battery import read_battery, run_battery
    from obygaze_models.bias.inputs import manifest_columns, open_vectors

    if (battery is None) == (not sets):
        raise UsageError("pass either a BATTERY, or --sets for a single test")
    loaded = [of.Manifest.load(path) for path in manifests]
    return run_battery(
        read_battery(battery) if battery is not None else _battery_of(sets),
        open_vectors(store, array, manifests=loaded),
        None if texts is None else open_vectors(texts, manifests=loaded),
        tables=[manifest_columns(manifest) for manifest in loaded],
        settings=Settings(**settings),
        model=published,
        skip_missing=skip_missing,
    )


def _battery_of(sets: tuple[str, ...]) -> Battery:
    from obygaze_models.bias.battery import AssociationTest, Battery

    selectors: dict[str, Selector] = {}
    for text in sets:
        name, _, selector = text.partition("=")
        if name not in ("x", "y", "a", "b") or name in selectors:
            raise UsageError(f"--sets {text}: pass x=SET, a=SET, b=SET (y is optional) once each")
        selectors[name] = _selector(selector)
    if missing := sorted({"x", "a", "b"} - selectors.keys()):
        raise UsageError(f"--sets: {missing[0]} is missing. Add --sets {missing[0]}=SET")
    name = "given sets"
    x, a, b = (selectors[key] for key in "xab")
    return Battery((AssociationTest(name, x, a, b, selectors.get("y")),), name)


def _selector(text: str) -> Selector:
    if text.startswith("@"):
        foreign = OSError, UnicodeDecodeError
        with translate(UsageError, text[1:], "cannot be read: {}", foreign=foreign):
            lines = Path(text[1:]).read_text(encoding="utf-8").splitlines()
        return tuple(filter(None, map(str.strip, lines)))
    parts = tuple(filter(None, text.split(",")))
    if ":" not in text:
        return parts
    columns = [part.partition(":") for part in parts]
    if not all(colon for _, colon, _ in columns):
        raise UsageError(f"{text}: pass either ids, or COLUMN:VALUE|VALUE separated by commas")
    return {name: tuple(values.split("|")) for name, _, values in columns}


@bias.command()
@folder_argument("captions")
@option(
    "--minimum",
    type=click.IntRange(min=0),
    default=100,
    help="Leave out words that occur fewer times than this.",
)
@click.option("--all-words", is_flag=True, help="Count the words of every emotion in every group.")
@path_option("--lexicon", help="Your own words and groups, in a JSON file.  [default: the paper's]")
@_with_outputs
def captions(captions: Path, minimum: int, all_words: bool, lexicon: Path | None) -> _Measured:
    """Count emotion words per 1000 CAPTIONS for groups of images.

    CAPTIONS is a CSV table (image_id, condition, emotion, caption, and optionally intensity), or a
    folder of files with one caption per line. A file name such as ann_AN1_NO_3.txt gives the
    subject, emotion (AN, SA, HA) and intensity, condition (NO, O) and number. In each group, the
    words of the group's emotion are counted. In neutral captions (ann_NE_NO_3.txt), the words of
    every emotion are counted, for comparison. Words that are rare across all captions are left out.

    \b
    Examples:
      obygaze bias captions captions.csv -o rates.csv -o rates.svg
      obygaze bias captions sobem-captions/ --minimum 50 --json
    """
    from obygaze_models.bias.captions import emotion_rates, read_captions
    from obygaze_models.bias.inputs import read_lexicon, shipped_lexicon

    words = shipped_lexicon("emotions") if lexicon is None else read_lexicon(lexicon)
    images = read_captions(captions, words)
    return emotion_rates(images, words, minimum=minimum, all_words=all_words)


@bias.command()
@folder_argument("table")
@click.option("--rater", "raters", multiple=True, help="Use only this rater's column; repeatable.")
@_with_outputs
def ratings(table: Path, raters: tuple[str, ...]) -> _Measured:
    """Show the share of images that raters label as sexualised.

    TABLE has the columns image_id and group, and a column of labels for each rater (1 or 0, yes or
    no, or one of drawings, hentai, neutral, porn, sexy). Instead of raters, it may have five
    columns with a classifier's probabilities of these classes. Porn, sexy and hentai count as
    sexualised. Each share has a 95% Wilson interval. With two or more raters, Cronbach's alpha
    measures their reliability.

    \b
    Examples:
      obygaze bias ratings labels.csv -o shares.csv -o shares.svg
      obygaze bias ratings labels.csv --rater ann --rater ben --json
    """
    from obygaze_models.bias.ratings import read_ratings

    return read_ratings(table, raters)


@bias.command("gender-score")
@folder_argument("scores")
@click.option(
    "--cooccurrence", is_flag=True, help="Count co-occurrence only, which needs no scores."
)
@_with_outputs
def gender_score(scores: Path, cooccurrence: bool) -> _Measured:
    """Measure the gender score of captions and objects.

    The co-occurrence of gender and object is shown as well. SCORES is a CSV table, your own or from
    obygaze features caption-scores, with a confidence column (or P(c)). To score original captions,
    it needs the columns probability (or P) and similarity (or sim), and a group (man or woman) or a
    caption to derive the group from. To score both variants of a caption, it needs probability_man,
    similarity_man, probability_woman and similarity_woman instead. With an object column, the
    output has a line for each object. A .csv output has a row for each caption, and a .json output
    has everything.

    \b
    Examples:
      obygaze bias gender-score scores.csv -o by-caption.csv -o objects.svg
      obygaze bias gender-score captions.csv --cooccurrence --json
    """
    from obygaze_models.bias.gender_score import read_scored_captions

    return read_scored_captions(scores, baseline=cooccurrence)
