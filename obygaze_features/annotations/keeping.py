"""Where label sets of annotators are kept: in a manifest on disk, or in a new one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from obygaze_features.common.files import refuse_to_overwrite, to_json, write_text
from obygaze_features.manifests.labels import LabelSet
from obygaze_features.manifests.manifest import HEADER, Manifest, read_header, save_parts

__all__ = ["keep_labels"]


def keep_labels(
    manifest: Manifest,
    label_sets: Sequence[LabelSet],
    output: Path,
    *,
    default: str | None = None,
    overwrite: bool = False,
) -> str | None:
    """Save label sets with a manifest; gives the label set that is meant where none is named.

    Parameters
    ----------
    manifest
        The clips, and the scheme of the labels.
    label_sets
        What is saved with it.
    output
        The manifest's own folder, which gets the label sets besides what it has; or another one,
        for a manifest of its own.
    default
        The label set that is to be the default one where the manifest has none.
    overwrite
        Replace label sets of the same name, or what lies at `output`.
    """
    default = manifest.default_labels or default
    if manifest.folder is None or output.resolve() != manifest.folder.resolve():
        whole = manifest.with_parts(labels=label_sets)
        replace(whole, default_labels=default).save(output, overwrite=overwrite)
        return default
    for labels in label_sets:
        refuse_to_overwrite(output / "labels" / f"{labels.name}.csv", overwrite=overwrite)
    old = read_header(output)
    # The header first: a scheme may have concepts that no label has, and not the other way.
    header = {**old, "default_labels": default, "label_scheme": manifest.scheme.to_json()}
    if header != old:
        write_text(output / HEADER, to_json(header))
    save_parts(output, label_sets, overwrite=True)
    return default
