"""``obygaze bias``: measures of bias in embeddings, captions and labels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from obygaze_features.common.cli import (
    ADDRESS,
    PATH,
    echo_json,
    folder_argument,
    json_option,
    overwrite_option,
)
from obygaze_features.common.tables import align, format_rows
from obygaze_features.common.text import counted
from obygaze_features.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from obygaze_models.bias.association import P
    from obygaze_models.bias.battery import Battery, Selector
    from obygaze_models.bias.captions import Rate, Rates
    from obygaze_models.bias.gender_score import ObjectScores
    from obygaze_models.bias.ratings import RaterPair, Share
    from obygaze_models.bias.run_battery import BatteryResults

PARTLY_DONE = 3
_FIGURES = (".svg", ".pdf", ".png")
_SUFFIXES = (".csv", ".json", *_FIGURES)
#: Measure -> its columns in the printed table.
_BALANCE_COLUMNS = {
    "said": ("said: man", "woman"),
    "filled": ("filled in: man", "woman"),
    "assigned": ("assigned: man", "woman", "tied"),
    "cooccurrence": ("captions of: man", "woman", "neither"),
}


@click.group()
def bias() -> None:
    """Measures of bias in embeddings, captions and labels, from the field's other works.

    \b
    Example:
      obygaze bias eat emotion --store stores/sobem.zarr --texts stores/prompts.zarr
    """


@dataclass(frozen=True)
class _Measured:
    """What a command has measured: a text to print, and what its outputs have.

    `notes` are warnings; with `left_out` not all could be done.
    """

    text: str
    rows: Sequence[dict[str, Any]]
    content: dict[str, Any]
    figure: Callable[[], Figure]
    notes: Iterable[str] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)


def _with_outputs(command: Callable[..., _Measured]) -> Callable[..., None]:
    """The options ``-o`` (several), ``--overwrite`` and ``--json``, and what they do."""

    @wraps(command)
    def run(outputs: list[Path], overwrite: bool, as_json: bool, **options: Any) -> None:
        from obygaze_features.common.figures import save_figure
        from obygaze_features.common.files import refuse_to_overwrite, to_json, write_text

        for path in outputs:
            refuse_to_overwrite(path, overwrite=overwrite)
        measured = command(**options)
        if as_json:
            echo_json(measured.content)
        else:
            click.echo(measured.text)
        left_out = (f"{name} is left out: {reason}" for name, reason in measured.left_out.items())
        for note in (*measured.notes, *left_out):
            click.secho(f"NOTE: {note}", fg="yellow", err=True)
        for path in outputs:
            if path.suffix in _FIGURES:
                save_figure(measured.figure(), path, overwrite=overwrite)
            elif path.suffix == ".json":
                write_text(path, to_json(measured.content))
            else:
                write_text(path, format_rows(measured.rows, number=str))
            click.echo(f"Wrote {path}", err=as_json)
        context = click.get_current_context()
        if not outputs and not as_json:
            name = context.info_name
            click.echo(f"next: add -o {name}.csv -o {name}.svg to keep the table and its figure")
        if measured.left_out:
            context.exit(PARTLY_DONE)

    output = click.option(
        "-o",
        "--output",
        "outputs",
        multiple=True,
        type=PATH,
        callback=_check_outputs,
        help="A .csv or .json table, or an .svg, .pdf or .png figure; can be repeated.",
    )
    return output(overwrite_option(json_option(run)))


def _check_outputs(
    ctx: click.Context, param: click.Parameter, outputs: tuple[Path, ...]
) -> list[Path]:
    for path in outputs:
        if path.suffix not in _SUFFIXES:
            raise UsageError(f"{path}: end the name in {', '.join(_SUFFIXES)}")
    return list(dict.fromkeys(outputs))


@bias.command()
@click.argument("battery", required=False)
@click.option(
    "--store",
    type=ADDRESS,
    required=True,
    help="Embeddings of X and Y: a store, NAME.vec, NAME.csv, or a bottleneck (its concepts).",
)
@click.option("--texts", type=ADDRESS, help="Embeddings of A and B, if they are elsewhere.")
@click.option(
    "--manifest",
    "manifests",
    multiple=True,
    type=PATH,
    help="Select items by this manifest's columns instead of the store's; can be repeated.",
)
@click.option(
    "--sets",
    multiple=True,
    metavar="NAME=SET",
    help="Instead of a battery, x=, y=, a= and b= of one test; see above.",
)
@click.option("--array", default="native", show_default=True, help="Which array of --store.")
@click.option("--pooling", help="For an array with several vectors an item: max, mean or first.")
@click.option(
    "--ddof",
    type=click.IntRange(0, 1),
    default=1,
    show_default=True,
    help="Standard deviation of a sample (1) or of a population (0).",
)
@click.option(
    "--p",
    type=click.Choice(["auto", "exact", "sampled", "normal"]),
    default="auto",
    show_default=True,
    help="Over all partitions, or random ones; auto: all up to 200,000.",
)
@click.option(
    "--samples",
    type=click.IntRange(min=1),
    default=100_000,
    show_default=True,
    help="How many random partitions.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed of all draws."
)
@click.option("--published", metavar="MODEL", help="Show the published numbers of this model.")
@click.option("--skip-missing", is_flag=True, help="Leave out items without an embedding.")
@_with_outputs
def eat(
    battery: str | None,
    store: Path | str,
    texts: Path | str | None,
    manifests: tuple[Path, ...],
    sets: tuple[str, ...],
    array: str,
    pooling: str | None,
    ddof: int,
    p: P,
    samples: int,
    seed: int,
    published: str | None,
    skip_missing: bool,
) -> _Measured:
    """Test whether items are nearer to some words than others are: WEAT and its kin.

    BATTERY is emotion, professions, or a JSON file of your own; each of its tests asks whether X
    are nearer to A than to B, more so than Y are. A set of --sets is ids (x=doc,nurse), columns
    with their values (x=gender:woman,profession:science|medicine) or a file with one id a line
    (x=@women.txt); without y each item of x is tested alone.

    \b
    Examples:
      obygaze bias eat emotion --store stores/sobem.zarr --texts stores/prompts.zarr
      obygaze bias eat professions --store clip.zarr -o professions.csv -o professions.svg
      obygaze bias eat --store glove.vec --sets x=rose,lily --sets y=ant,wasp \\
        --sets a=love,peace --sets b=hatred,filth
      obygaze bias eat --store models/tree --texts prompts.zarr --sets x=Look,Body \\
        --sets a=stimulus:nude --sets b=stimulus:dressed
    """
    from obygaze_features.manifests import Manifest
    from obygaze_models.bias.association import Settings
    from obygaze_models.bias.battery import read_battery
    from obygaze_models.bias.figures import battery_figure
    from obygaze_models.bias.run_battery import run_battery
    from obygaze_models.bias.vectors import manifest_columns, open_vectors

    if (battery is None) == (not sets):
        remark = "; not both" if sets else ""
        raise UsageError(f"give the name of a battery, or --sets of one test{remark}")
    results = run_battery(
        read_battery(battery) if battery is not None else _battery_of(sets),
        open_vectors(store, array, pooling),
        None if texts is None else open_vectors(texts),
        tables=[manifest_columns(Manifest.load(path)) for path in manifests],
        settings=Settings(ddof=1 if ddof else 0, p=p, samples=samples, seed=seed),
        model=published,
        skip_missing=skip_missing,
    )
    content = results.to_dict()
    return _Measured(
        _battery_text(results),
        content["rows"],
        content,
        lambda: battery_figure(results),
        results.notes,
        results.left_out,
    )


def _battery_of(sets: tuple[str, ...]) -> Battery:
    from obygaze_models.bias.battery import AssociationTest, Battery

    selectors: dict[str, Selector] = {}
    for text in sets:
        name, equals, selector = text.partition("=")
        if name not in ("x", "y", "a", "b") or not equals or name in selectors:
            raise UsageError(f"--sets {text}: give x=SET, y=SET, a=SET and b=SET, each once")
        selectors[name] = _selector(selector)
    for name in "xab":
        if name not in selectors:
            raise UsageError(f"--sets: {name} is missing; add --sets {name}=SET")
    name = "given sets"
    x, a, b = (selectors[key] for key in "xab")
    return Battery(name, (AssociationTest(name, x, a, b, selectors.get("y")),))


def _selector(text: str) -> Selector:
    if text.startswith("@"):
        try:
            lines = Path(text[1:]).read_text(encoding="utf-8").splitlines()
        except OSError as problem:
            raise UsageError(f"{text[1:]} cannot be read: {problem.strerror}") from None
        except UnicodeDecodeError:
            raise UsageError(f"{text[1:]} is not UTF-8; save it as UTF-8") from None
        return tuple(filter(None, map(str.strip, lines)))
    parts = tuple(filter(None, text.split(",")))
    if ":" not in text:
        return parts
    columns = [part.partition(":") for part in parts]
    if not all(colon for _, colon, _ in columns):
        raise UsageError(f"{text}: give ids, or COLUMN:VALUE|VALUE separated by commas; not both")
    return {name: tuple(values.split("|")) for name, _, values in columns}


def _battery_text(results: BatteryResults) -> str:
    from obygaze_models.bias.figures import format_p
    from obygaze_models.bias.run_battery import SIGNIFICANT

    has_published = any(row.published for row in results.rows)
    header = [results.battery, "X", "Y", "A", "B", "d", "95%", "T", "p"]
    lines = []
    for row in results.rows:
        result = row.association
        interval = "-" if result.low is None else f"{result.low:+.2f} to {result.high:+.2f}"
        d = _starred(result.d, row.significant)
        line = [row.name, row.x, row.y or "-", row.a, row.b, d, interval]
        line += [f"{result.statistic:+.4f}", format_p(result.p)]
        if has_published:
            published = row.published
            line.append(_starred(published.d, published.significant) if published else "-")
        lines.append(line)
    table = align([*header, *([str(results.model)] if has_published else [])], lines)
    methods = dict.fromkeys(
        _method(row.association.p_is, row.association.partitions) for row in results.rows
    )
    p = " or ".join(methods)
    return f"{table}\n* p < {SIGNIFICANT}, one-sided; p {p}; 95% of d over draws"


def _starred(d: float, significant: bool) -> str:
    return f"{d:+.2f}{'*' if significant else ' '}"


def _method(p_is: str, partitions: int | None) -> str:
    if partitions is None:
        return "from a normal distribution"
    return f"over {'all' if p_is == 'exact' else 'random'} partitions ({partitions:,})"


@bias.command()
@folder_argument("captions")
@click.option(
    "--minimum",
    type=click.IntRange(min=0),
    default=100,
    show_default=True,
    help="Leave out words that occur less often in all captions together.",
)
@click.option(
    "--all-words",
    is_flag=True,
    help="Count each emotion's words in each group, not only in that of the emotion.",
)
@click.option(
    "--lexicon",
    type=PATH,
    help="Words and groups of your own, in a JSON file.  [default: the paper's]",
)
@_with_outputs
def captions(
    captions: Path,
    minimum: int,
    all_words: bool,
    lexicon: Path | None,
) -> _Measured:
    """Count emotion words per 1000 CAPTIONS of each group of images.

    CAPTIONS is a CSV table (image_id, condition, emotion, caption, and optionally intensity), or a
    folder of files such as ann_AN1_NO_3.txt, one caption a line: subject, emotion (AN, SA, HA) and
    intensity, condition (NO, O), number. In neutral captions (ann_NE_NO_3.txt) the words of each
    emotion are counted, for comparison.

    \b
    Examples:
      obygaze bias captions captions.csv -o rates.csv -o rates.svg
      obygaze bias captions sobem-captions/ --minimum 50 --json
    """
    from obygaze_models.bias.captions import emotion_rates, read_captions
    from obygaze_models.bias.figures import rates_figure
    from obygaze_models.bias.lexicon import read_lexicon, shipped_lexicon

    words = shipped_lexicon("emotions") if lexicon is None else read_lexicon(lexicon)
    images = read_captions(captions, words)
    rates = emotion_rates(images, words, minimum=minimum, all_words=all_words)
    content = {
        "images": sum(image.captions > 0 for image in images),
        "captions": sum(image.captions for image in images),
        "blank": sum(image.blank for image in images),
        "lexicon": words.name,
        **asdict(rates),
    }
    rows = [asdict(rate) for rate in rates.rates]
    if not rates.several_lists:
        rows = [{key: value for key, value in row.items() if key != "words"} for row in rows]
    number = f"{counted(content['captions'], 'caption')} of {counted(content['images'], 'image')}"
    return _Measured(
        "\n".join([f"{number}, words of {words.name}", *_rate_lines(rates)]),
        rows,
        content,
        lambda: rates_figure(rates),
        _caption_notes(rates, content["blank"]),
    )


def _caption_notes(rates: Rates, blank: int) -> Iterator[str]:
    from obygaze_models.bias.captions import INTENSITIES

    if blank:
        yield f"{counted(blank, 'blank line or cell', 'blank lines or cells')} left out: no caption"
    intensities = dict.fromkeys(rate.intensity for rate in rates.rates)
    if not {"high", "low"}.isdisjoint(intensities) and not set(INTENSITIES).isdisjoint(intensities):
        listed = ", ".join(intensities)
        yield f"intensities are called {listed} and counted as different; write them alike"
    for name in dict.fromkeys(rate.words for rate in rates.rates):
        if not rates.counted[name]:
            times = counted(rates.minimum, "time")
            yield (
                f"no word of {name} occurs {times}, so its rates say nothing; lower --minimum to "
                "count them"
            )


def _rate_lines(rates: Rates) -> Iterator[str]:
    several = rates.several_lists
    header = ["emotion", "intensity", "condition", *(["words of"] if several else [])]
    rows = [
        [
            rate.emotion,
            rate.intensity or "-",
            rate.condition,
            *([rate.words] if several else []),
            *_rate_cells(rate, bool(rates.counted[rate.words])),
        ]
        for rate in rates.rates
    ]
    yield align([*header, "count", "captions", "per 1000", "95%"], rows, left=len(header))
    for name in dict.fromkeys(rate.words for rate in rates.rates):
        rare = [f"{word} {count:,}" for word, count in rates.left_out[name].items() if count]
        if rare:
            yield f"left out of {name}, fewer than {rates.minimum} times: {', '.join(rare)}"


def _rate_cells(rate: Rate, counted: bool) -> list[str]:
    """Count, captions, rate and interval; there are no rates if all words are left out."""
    captions = f"{rate.captions:,}"
    if not counted:
        return ["-", captions, "-", "-"]
    interval = "-" if rate.low is None else f"{rate.low:.2f} to {rate.high:.2f}"
    return [f"{rate.count:,}", captions, f"{rate.rate:.2f}", interval]


@bias.command()
@folder_argument("table")
@click.option(
    "--rater",
    "raters",
    multiple=True,
    help="Only this column; can be repeated. The five probabilities are called classifier.",
)
@_with_outputs
def ratings(
    table: Path,
    raters: tuple[str, ...],
) -> _Measured:
    """Tell which share of each group's images a TABLE labels as sexualised, and how reliably.

    TABLE has image_id, group, and a column of labels for each rater (1 or 0, yes or no, or one of
    drawings, hentai, neutral, porn, sexy), or five columns of a classifier's probabilities for
    these. Porn, sexy and hentai are sexualised. Shares have Wilson's 95% interval; with two raters
    or more there is Cronbach's alpha.

    \b
    Examples:
      obygaze bias ratings labels.csv -o shares.csv -o shares.svg
      obygaze bias ratings labels.csv --rater ann --rater ben --json
    """
    from obygaze_models.bias.figures import shares_figure
    from obygaze_models.bias.ratings import cronbach_alpha, group_shares, rater_pairs, read_ratings

    read = read_ratings(table, raters)
    shares = group_shares(read)
    alpha = cronbach_alpha(read.sexualised) if len(read.raters) > 1 else None
    pairs = rater_pairs(read)
    rows = [asdict(share) for share in shares]
    content = {
        "images": len(read.images),
        "raters": list(read.raters),
        "shares": rows,
        "alpha": alpha,
        "pairs": [asdict(pair) for pair in pairs],
    }
    notes = [
        f"the probabilities of {counted(read.uneven, 'image')} do not sum to about 1; the most "
        "probable class was taken anyway"
    ]
    return _Measured(
        _shares_text(shares) + (_reliability_text(read.raters, alpha, pairs) if pairs else ""),
        rows,
        content,
        lambda: shares_figure(shares),
        notes if read.uneven else (),
    )


def _shares_text(shares: Sequence[Share]) -> str:
    rows = [
        [
            share.group,
            share.rater,
            f"{share.count:,}",
            f"{share.images:,}",
            f"{share.share:.1%}",
            f"{share.low:.1%} to {share.high:.1%}",
        ]
        for share in shares
    ]
    return align(["group", "rater", "sexualised", "images", "share", "95%"], rows, left=2)


def _reliability_text(
    raters: Sequence[str], alpha: float | None, pairs: Sequence[RaterPair]
) -> str:
    rows = [
        [f"{pair.first}, {pair.second}", _alpha_cell(pair.alpha), f"{pair.agreement:.1%}"]
        for pair in pairs
    ]
    if len(pairs) > 1:
        rows.insert(0, [f"all {len(raters)}", _alpha_cell(alpha), ""])
    return "\n\n" + align(["raters", "Cronbach's alpha", "same label"], rows)


def _alpha_cell(alpha: float | None) -> str:
    return "-" if alpha is None else f"{alpha:.6f}"


@bias.command("gender-score")
@folder_argument("scores")
@click.option(
    "--cooccurrence", is_flag=True, help="Only the baseline, which needs no scores of captions."
)
@_with_outputs
def gender_score(
    scores: Path,
    cooccurrence: bool,
) -> _Measured:
    """Measure the gender score of captions and objects, beside how often these go together.

    SCORES is a CSV table, by obygaze features caption-scores or your own: confidence (or P(c)),
    with probability (P), similarity (sim) and group (man or woman; else the caption tells) of the
    caption as it is, or probability_man, similarity_man, probability_woman and similarity_woman of
    both variants. With object, there is a line for each object. A .csv output has a row for each
    caption, .json everything.

    \b
    Examples:
      obygaze bias gender-score scores.csv -o by-caption.csv -o objects.svg
      obygaze bias gender-score captions.csv --cooccurrence --json
    """
    from obygaze_models.bias.figures import balance_figure
    from obygaze_models.bias.gender_score import all_objects, by_object, read_scored_captions

    read = read_scored_captions(scores, baseline=cooccurrence)
    objects, together = by_object(read), all_objects(read)
    rows = read.rows()
    content = {
        "all": together.to_dict(),
        "objects": [scores.to_dict() for scores in objects],
        "captions": rows,
    }
    return _Measured(
        "\n".join(_object_lines(objects, together)),
        rows,
        content,
        lambda: balance_figure(objects or [together]),
    )


def _object_lines(objects: Sequence[ObjectScores], together: ObjectScores) -> Iterator[str]:
    from obygaze_models.bias.figures import MAX_OBJECTS
    from obygaze_models.bias.gender_score import truncate

    header, rows = ["object", "captions"], []
    for measure, columns in _BALANCE_COLUMNS.items():
        header += [*columns, "to-m"] if getattr(together, measure) else []
    for scores in [*objects[:MAX_OBJECTS], together]:
        row = [scores.object, f"{scores.captions:,}"]
        for measure, columns in _BALANCE_COLUMNS.items():
            if (balance := getattr(scores, measure)) is not None:
                parts = (balance.man, balance.woman, balance.neither)[: len(columns)]
                row += [*map(_score_cell, parts), truncate(balance.man_share)]
        rows.append(row)
    yield align(header, rows)
    if len(objects) > MAX_OBJECTS:
        hidden = len(objects) - MAX_OBJECTS
        yield f"and {hidden:,} more objects; all of them with: -o NAME.json"
    yield "to-m: man / (man + woman), cut to two decimals as in the published table."


def _score_cell(value: int | float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}"
