"""Prompts: each stimulus of a table in each of some templates, as texts."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import click

from obygaze_features.common.tables import read_table
from obygaze_features.common.words import counted, quote
from obygaze_features.errors import ManifestError, UsageError
from obygaze_features.manifests import items
from obygaze_features.manifests.articles import ARTICLES, with_article
from obygaze_features.manifests.importers.shared import (
    delimiter_of,
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


def import_prompts(
    source: Path,
    templates: Sequence[str] = TEMPLATES,
    *,
    article: str = "sound",
    name: str | None = None,
) -> Manifest:
    """Make a manifest of texts: every stimulus in every template.

    Parameters
    ----------
    source
        A table with the column ``stimulus``, and if you like ``set``; others are kept.
    templates
        Each with ``{}`` where the stimulus goes.
    article
        One of `ARTICLES`: how an ``a`` before the stimulus is written.
    name
        The manifest's name; by default the file's.
    """
    table = without_blank_rows(
        read_table(source, delimiter=delimiter_of(source), required=["stimulus"])
    )
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
                    row, f"{quote(text)} is there already as {identifier}; take one of them out"
                )
            made[identifier.lower()] = Item(identifier, kind="text", text=text)
            kept["template"].append(template)
            for column, cell in cells.items():
                kept[column].append(stimulus if column == "stimulus" else cell)
    return Manifest(
        name=name or source.stem, items=Items.of(list(made.values()), kept), source=source.name
    )


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
    f"[default: {'; '.join(TEMPLATES)}]",
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

    SOURCE is a CSV table that has the column stimulus, and if you like set; the manifest keeps
    both, and the template, so that texts can be chosen by them. An id is the set and the text.

    \b
    Examples:
      obygaze manifests import prompts stimuli.csv -o manifests/prompts
      obygaze manifests import prompts stimuli.csv -o manifests/prompts --article always-a \\
        --template "{}" --template "a photo of a {}"
    """
    chosen = templates or TEMPLATES
    manifest = import_prompts(source, chosen, article=article, name=name)
    example = manifest.items[len(chosen) - 1]
    rows = len(manifest) // len(chosen)
    notes = [
        f"{counted(rows, 'stimulus', 'stimuli')} in {counted(len(chosen), 'template')}",
        f"ids: {quote(example.text)} is {example.id}",
    ]
    finish(manifest, output, overwrite=overwrite, notes=notes)
