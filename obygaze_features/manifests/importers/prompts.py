"""Prompts: each stimulus of a table in each of some templates, as texts."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import click

from obygaze_features.common.files import read_json
from obygaze_features.common.package import reference_file
from obygaze_features.common.tables import Table, read_table
from obygaze_features.common.text import counted, shorten
from obygaze_features.errors import ManifestError, UsageError
from obygaze_features.manifests import items
from obygaze_features.manifests.articles import ARTICLES, with_article
from obygaze_features.manifests.importers.shared import (
    finish,
    output_options,
    safe_id,
    source_argument,
    without_blank_rows,
)
from obygaze_features.manifests.items import MAX_ID, Item, Items
from obygaze_features.manifests.manifest import Manifest

__all__ = ["TEMPLATES", "import_prompts"]

TEMPLATES = (
    "{}",
    "a {}",
    "a photo of a {}",
    "an image of a {}",
    "a picture of a {}",
)
"""Those of Wolfe et al. (2023), with which CLIP is commonly asked."""
SHIPPED = ("emotion", "professions")
"""Batteries that come with obygaze."""


def import_prompts(
    source: Path,
    templates: Sequence[str] = (),
    *,
    article: str = "sound",
    name: str | None = None,
) -> Manifest:
    """Make a manifest of texts: every stimulus in every template.

    Parameters
    ----------
    source
        A table with the column ``stimulus``, and if you like ``set``; others are kept. Or a
        battery of association tests: a JSON file, or the name of a shipped one.
    templates
        Each with ``{}`` where the stimulus goes; by default the battery's, or `TEMPLATES`.
    article
        One of `ARTICLES`: how an ``a`` before the stimulus is written.
    name
        The manifest's name; by default the file's.
    """
    table, own_templates = _stimuli(source)
    if not len(table):
        raise ManifestError(f"{source} has a header and no stimuli")
    templates = templates or own_templates
    own = {*items.COLUMNS, "template"} & set(table.columns)
    if own:
        raise ManifestError(f"{source}, line 1: the column {min(own)!r} is made here; rename it")
    if twice := [one for one in templates if templates.count(one) > 1]:
        raise UsageError(f"the template {twice[0]!r} is there twice")
    made: dict[str, Item] = {}
    kept: dict[str, list[str]] = {"template": [], **{column: [] for column in table.columns}}
    for row, cells in enumerate(table.rows()):
        stimulus = cells["stimulus"].strip()
        if not stimulus:
            raise table.problem(row, "an empty stimulus")
        for template in templates:
            text = with_article(template, stimulus, article)
            identifier = _id(cells.get("set", ""), text)
            if identifier.lower() in made:
                raise table.problem(
                    row, f"{shorten(text)} is there already as {identifier}; take one of them out"
                )
            made[identifier.lower()] = Item(identifier, kind="text", text=text)
            kept["template"].append(template)
            for column, cell in cells.items():
                kept[column].append(stimulus if column == "stimulus" else cell)
    return Manifest(
        name=name or source.stem, items=Items.of(list(made.values()), kept), source=source.name
    )


def _stimuli(source: Path) -> tuple[Table, tuple[str, ...]]:
    """Rows of stimuli, and the templates that are meant for them."""
    shipped = str(source) in SHIPPED and not source.is_file()
    path = reference_file(f"batteries/{source}.json") if shipped else source
    if path.suffix != ".json":
        table = read_table(path, delimiter=None, required=["stimulus"])
        return without_blank_rows(table), TEMPLATES
    battery = read_json(path, ManifestError)
    try:
        pairs = [
            (group, stimulus)
            for group, of in battery["sets"].items()
            if isinstance(of, dict)
            for stimulus in _stimuli_of(of)
        ]
        templates = _texts_in(battery, "templates") or TEMPLATES
    except (KeyError, TypeError, AttributeError):
        raise ManifestError(f"{path} is not a battery with sets of stimuli") from None
    if not pairs:
        raise ManifestError(f"{path} has no sets of stimuli; its tests go by ids")
    groups, stimuli = map(list, zip(*pairs, strict=True))
    return Table(path, ",", {"set": groups, "stimulus": stimuli}), templates


def _stimuli_of(chosen: dict[str, object]) -> tuple[str, ...]:
    """Those that a set names; a text alone is one, as for `obygaze bias eat`."""
    alone = chosen.get("stimulus")
    return (alone,) if isinstance(alone, str) else _texts_in(chosen, "stimulus")


def _texts_in(content: dict[str, object], name: str) -> tuple[str, ...]:
    """A list of texts; a text alone would be taken for a list of its letters."""
    found = content.get(name, [])
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise TypeError(name)
    return tuple(found)


def _id(group: str, text: str) -> str:
    """``SET-the_text``; a piece of the text's hash where it is too long."""
    identifier = "-".join(filter(None, [safe_id(group) if group else "", safe_id(text)]))
    if len(identifier) <= MAX_ID:
        return identifier
    digest = hashlib.sha256(f"{group}\n{text}".encode()).hexdigest()[:8]
    return f"{identifier[: MAX_ID - 9]}-{digest}"


@click.command("prompts")
@source_argument
@output_options("prompts")
@click.option(
    "--template",
    "templates",
    multiple=True,
    metavar="TEXT",
    help="With {} where the stimulus goes; give it several times.  "
    f"[default: the battery's, or {'; '.join(TEMPLATES)}]",
)
@click.option(
    "--article",
    type=click.Choice(list(ARTICLES)),
    default="sound",
    show_default=True,
    help="Of an a right before the stimulus: an by sound (an hour), an by letter (a hour), or "
    "never an (a engineer), as some published prompts are.",
)
@click.option("--name", help="The manifest's name; by default the file's.")
def command(
    source: Path,
    output: Path,
    overwrite: bool,
    templates: tuple[str, ...],
    article: str,
    name: str | None,
) -> None:
    """Texts: each stimulus in each template.

    SOURCE is a CSV table that has the column stimulus, and if you like set; or a battery of
    association tests, emotion, professions or a JSON file. The manifest keeps set, stimulus and
    template, so that texts can be chosen by them. An id is the set and the text.

    \b
    Examples:
      obygaze manifests import prompts emotion -o manifests/emotion
      obygaze manifests import prompts stimuli.csv -o manifests/prompts
      obygaze manifests import prompts stimuli.csv -o manifests/prompts --article always-a \\
        --template "{}" --template "a photo of a {}"
    """
    manifest = import_prompts(source, templates, article=article, name=name)
    each = len(set(manifest.items.extra["template"]))
    example = manifest.items[each - 1]
    notes = [
        f"{counted(len(manifest) // each, 'stimulus', 'stimuli')} in {counted(each, 'template')}",
        f"ids: {shorten(example.text)} is {example.id}",
    ]
    finish(manifest, output, overwrite=overwrite, notes=notes)
