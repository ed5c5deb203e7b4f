"""The authors' annotation file of ObyGaze12: 1,914 clips of 12 films, under three rules."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click
import numpy as np

from obygaze_features.common.package import reference_json
from obygaze_features.common.tables import Table, read_table
from obygaze_features.errors import ManifestError
from obygaze_features.manifests.importers.shared import (
    fetched,
    finish,
    output_options,
    parse_list,
    url_options,
    without_blank_rows,
)
from obygaze_features.manifests.items import ItemProblem, Items
from obygaze_features.manifests.labels import LabelSet
from obygaze_features.manifests.manifest import Manifest
from obygaze_features.manifests.scheme import LabelScheme, obygaze_scheme

__all__ = ["RULES", "import_obygaze12"]

#: How the raw annotations become labels; every rule is a label set over the same items.
RULES = {
    "paper": "visual concepts only; a clip left with none becomes Easy Negative",
    "released": "visual concepts only; a clip left with none is dropped unless Easy Negative",
    "raw": "as annotated, with the concepts that cannot be seen",
}
REQUIRED = ("clip", "label", "overlap_ratio", "concepts", "id", "movie", "video_name")
UNUSED = ("idx", "util", "clip", "srt_name", "graph_number")


def import_obygaze12(source: Path, *, rule: str = "paper") -> Manifest:
    """Read the authors' file into a manifest with a label set for each of `RULES`.

    Parameters
    ----------
    source
        ``ObyGaze12_thresh_02.csv`` or a file like it.
    rule
        Which label set is the default one.
    """
    table = without_blank_rows(read_table(source, delimiter=";", required=REQUIRED))
    try:
        items = Items(
            ids=table["id"],
            kinds=["clip"] * len(table),
            films=table["movie"],
            media=table["video_name"],
            texts=[""] * len(table),
            starts=np.full(len(table), np.nan),
            ends=np.full(len(table), np.nan),
            extra={name: table[name] for name in UNUSED if name in table.columns},
        )
    except ItemProblem as problem:
        raise table.problem(problem.row, problem.message) from None
    scheme = obygaze_scheme()
    raw = _raw_labels(table, scheme)
    about = reference_json("sources.json")["obygaze12"]
    return Manifest(
        name="obygaze12",
        items=items,
        scheme=scheme,
        source=f"{about['repository']} at {about['revision']}",
        licence=about["licence"],
        citation=about["citation"],
        default_labels=rule,
    ).with_parts(labels=[_apply(name, raw, scheme) for name in RULES])


def _raw_labels(table: Table, scheme: LabelScheme) -> LabelSet:
    levels, concepts = [], []
    for row, (label, names) in enumerate(zip(table["label"], table["concepts"], strict=True)):
        try:
            levels.append(scheme.level(label))
            concepts.append(scheme.in_order(map(scheme.concept, parse_list(names))))
        except ManifestError as error:
            raise table.problem(row, str(error)) from None
    return LabelSet(
        "raw",
        table["id"],
        levels,
        concepts,
        ratio=table["overlap_ratio"],
        extra={"raw_label": table["label"], "raw_concepts": table["concepts"]},
        about={"rule": RULES["raw"]},
    )


def _apply(rule: str, raw: LabelSet, scheme: LabelScheme) -> LabelSet:
    if rule == "raw":
        return raw
    visual = set(scheme.visual_concepts)
    concepts = [tuple(name for name in names if name in visual) for names in raw.concepts]
    lowest = scheme.codes[0]
    levels = [level if seen else lowest for level, seen in zip(raw.levels, concepts, strict=True)]
    labels = replace(raw, name=rule, levels=levels, concepts=concepts, about={"rule": RULES[rule]})
    if rule == "paper":
        return labels
    was_lowest = raw.level_of
    seen = labels.concepts_of
    return labels.where(lambda i: bool(seen[i]) or was_lowest[i] == lowest)


@click.command("obygaze12")
@url_options
@output_options("obygaze12")
@click.option(
    "--rule",
    type=click.Choice(list(RULES)),
    default="paper",
    show_default=True,
    help="The label set that is used where none is named; all three are made.",
)
def command(
    source: Path | None, fetch: bool, url: str | None, output: Path, overwrite: bool, rule: str
) -> None:
    """The annotations of the ObyGaze12 paper.

    SOURCE is ObyGaze12_thresh_02.csv of the authors' repository; or let --download fetch it.

    \b
    Examples:
      obygaze manifests import obygaze12 ObyGaze12_thresh_02.csv -o manifests/obygaze12
      obygaze manifests import obygaze12 --download
    """
    with fetched("obygaze12", source, fetch=fetch, url=url) as path:
        finish(import_obygaze12(path, rule=rule), output, overwrite=overwrite)
