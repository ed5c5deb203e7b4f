"""Where label sets of annotators are kept: in a manifest on disk, or in a new one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from obygaze_features.annotations.merge import made_of
from obygaze_features.annotations.projection import common_scheme
from obygaze_features.common.files import refuse_to_overwrite, to_json, write_text
from obygaze_features.manifests.header import HEADER, read_header
from obygaze_features.manifests.labels import LabelSet
from obygaze_features.manifests.manifest import Manifest, save_parts

__all__ = ["Kept", "keep_labels"]


@dataclass(frozen=True)
class Kept:
    """What became of a manifest: the label set that is meant where none is named, and the merges
    that went with what they were made of: name -> of which label sets.
    """

    default: str | None
    removed: Mapping[str, Sequence[str]]


def keep_labels(
    manifest: Manifest,
    label_sets: Sequence[LabelSet],
    output: Path,
    *,
    default: str | None = None,
    overwrite: bool = False,
) -> Kept:
    """Save label sets with a manifest.

    Merges of a label set that is replaced are removed, as they say what it says no more.

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
    own = manifest.folder is not None and output.resolve() == manifest.folder.resolve()
    if own:
        for labels in label_sets:
            refuse_to_overwrite(output / "labels" / f"{labels.name}.csv", overwrite=overwrite)
    else:
        refuse_to_overwrite(output, overwrite=overwrite)
    there: Manifest | None = manifest
    if not own:
        there = Manifest.load(output) if (output / HEADER).is_file() else None
    if there is None or there.digest != manifest.digest:
        default = manifest.default_labels or default
        whole = manifest.with_parts(labels=label_sets)
        replace(whole, default_labels=default).save(output, overwrite=overwrite)
        return Kept(default, {})
    stale = made_of(there, [labels.name for labels in label_sets])
    removed = dict(sorted(stale.items(), key=lambda one: one[0] != there.default_labels))
    meant = (there.default_labels, manifest.default_labels, default)
    default = next((name for name in meant if name is not None and name not in removed), None)
    scheme = common_scheme(there.scheme, manifest.scheme)
    # The header first: a scheme may have concepts that no label has, and not the other way.
    old = read_header(output)
    header = {**old, "default_labels": default, "label_scheme": scheme.to_json()}
    if header != old:
        write_text(output / HEADER, to_json(header))
    for name in removed:
        for suffix in (".csv", ".json"):
            (output / "labels" / f"{name}{suffix}").unlink(missing_ok=True)
    if own:
        save_parts(output, label_sets, overwrite=True)
    else:
        whole = replace(manifest.with_parts(labels=label_sets), scheme=scheme)
        replace(whole, default_labels=default).save(output, overwrite=True)
    return Kept(default, removed)
