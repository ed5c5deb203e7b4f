"""Make prompts: texts that combine each stimulus of a table with each template."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from obygaze_features.common.files import read_json, sha256_of_text
from obygaze_features.common.names import as_list
from obygaze_features.common.package import reference_file
from obygaze_features.common.tables import Table, read_table
from obygaze_features.errors import ManifestError, UsageError, translate
from obygaze_features.items import items
from obygaze_features.items.items import MAX_ID_LENGTH, Item, Items, safe_id
from obygaze_features.manifests.manifest import Manifest

TEMPLATES = ("{}", "a {}", "a photo of a {}", "an image of a {}", "a picture of a {}")
"""The templates of Wolfe et al. (2023), common prompts for CLIP."""
SHIPPED = ("emotion", "professions")
"""The batteries of association tests that come with obygaze."""
ARTICLES = ("letter", "always-a")
"""The rules for the article before a stimulus: "an" before a vowel, or always "a"."""
_ARTICLE = re.compile(r"\b([Aa])n? \{\}")


def import_manifest(
    source: Path | str,
    templates: Sequence[str],
    article: str,
) -> Manifest:
    """Make texts by putting each stimulus into each template."""
    source = Path(source)
    table, battery_templates = _read_stimuli(source)
    templates = templates or battery_templates
    reserved = {*items.COLUMNS, "template"} & set(table.columns)
    if reserved:
        raise ManifestError(f"{source}, line 1: column {min(reserved)!r} is reserved; rename it")
    made = []
    rows = []
    table.check_cells("stimulus")
    for cells in table.rows():
        cells["stimulus"] = cells["stimulus"].strip()
        for template in templates:
            text = with_article(template, cells["stimulus"], article)
            made.append(Item(_id(cells.get("set", ""), text), kind="text", text=text))
            rows.append({"template": template, **cells})
    extra = {column: [row[column] for row in rows] for column in ("template", *table.columns)}
    return Manifest(name=source.stem, items=Items.of(made, extra), source=source.name)


def with_article(template: str, stimulus: str, article: str = "letter") -> str:
    """Put a stimulus in place of the ``{}`` of a template, and adapt the article before it.

    Examples
    --------
    >>> with_article("a photo of a {}", "engineer")
    'a photo of an engineer'
    >>> with_article("a {}", "engineer", "always-a")
    'a engineer'
    """
    if template.count("{}") != 1:
        raise UsageError(f"the template {template!r} must contain {{}} exactly once")
    if article not in ARTICLES:
        raise UsageError(f"unknown article rule {article!r}; choose from {', '.join(ARTICLES)}")
    vowel = re.sub(r"^\W+", "", stimulus).lower().startswith(("a", "e", "i", "o", "u"))
    n = "n" if vowel and article == "letter" else ""
    return _ARTICLE.sub(lambda match: f"{match[1]}{n} {{}}", template).replace("{}", stimulus)


def _read_stimuli(source: Path) -> tuple[Table, tuple[str, ...]]:
    """Return the table of stimuli and the templates to use with it."""
    path = source
    if str(source) in SHIPPED and not source.is_file():
        path = reference_file(f"batteries/{source}.json")
    if path.suffix != ".json":
        return read_table(path, delimiter=None, required=["stimulus"]), TEMPLATES
    with translate(ManifestError, path, "is not a battery with sets of stimuli ({}); correct it"):
        battery = msgspec.convert(read_json(path, ManifestError), _Battery)

    columns: dict[str, list[str]] = {"set": [], "stimulus": []}
    for name, members in battery.sets.items():
        if isinstance(members, _Set):
            stimuli = as_list(members.stimulus)
            columns["set"] += [name] * len(stimuli)
            columns["stimulus"] += stimuli
    if not columns["set"]:
        raise ManifestError(f"{path} has no set with stimuli; pass a table with a stimulus column")
    lines = range(1, len(columns["set"]) + 1)
    return Table(path, ",", columns, lines), battery.templates or TEMPLATES


class _Set(msgspec.Struct):
    """A set of stimuli in a battery; a string is a single stimulus, as in `obygaze bias eat`."""

    stimulus: tuple[str, ...] | str = ()


class _Battery(msgspec.Struct):
    """The fields that are read from a battery; sets of ids are ignored."""

    sets: dict[str, _Set | list[Any] | str | None]
    templates: tuple[str, ...] = ()


def _id(set_name: str, text: str) -> str:
    """Return the id ``SET-the_text``; if it is too long, shorten it and add part of a hash."""
    id_ = safe_id(text)
    if set_name:
        id_ = f"{safe_id(set_name)}-{id_}"
    if len(id_) <= MAX_ID_LENGTH:
        return id_
    digest = sha256_of_text(f"{set_name}\n{text}")[:8]
    return f"{id_[: MAX_ID_LENGTH - 9]}-{digest}"
