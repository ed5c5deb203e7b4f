"""The dataset card of a final store: README.md for people, croissant.json for machines.

croissant.json is Croissant 1.0 (https://mlcommons.org/croissant), which dataset search engines
and the package mlcroissant read. Both contain only what the store itself says, so that equal
stores get equal cards.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from obygaze_features.common.files import sha256_of, to_json, write_text
from obygaze_features.common.tables import read_table
from obygaze_features.store import format as fmt
from obygaze_features.store.format import Status
from obygaze_features.store.reader import Store, open_store

_CONTEXT = Path(__file__).with_name("croissant_context.json")
"""The namespace of Croissant 1.0, exactly as in its specification."""
_MEDIA_TYPES = {".csv": "text/csv", ".json": "application/json"}
_MEANINGS = {
    "id": "Id of the item.",
    "status": "0 to do, 1 done, 2 media missing, 3 media unreadable, 4 a value not finite.",
    "source": "Fingerprint of what the row was computed from.",
    "reason": "Why the row failed.",
    "kind": "clip, image or text.",
    "film": "Id of the film.",
    "media": "Name of the media file.",
    "text": "The text, where the item is one.",
    "start": "Start in seconds, where the item is a span of a longer film.",
    "end": "End in seconds, where the item is a span of a longer film.",
}


def write_card(folder: Path, checksums: Mapping[str, str]) -> None:
    """Write README.md and croissant.json into a final store that has its data already.

    Parameters
    ----------
    folder
        The store.
    checksums
        The SHA-256 of files, by name, where it is known.
    """
    store = open_store(folder)
    facts = store.info()
    write_text(folder / fmt.CARD, _readme(store, facts))
    write_text(folder / fmt.CROISSANT, to_json(_croissant(folder, facts, checksums)))


def _readme(store: Store, facts: Mapping[str, Any]) -> str:
    rows, backbone = facts["rows"], facts["backbone"]
    name = f"{facts['name']}.zarr"
    counts = ", ".join(
        f"{int((store.status == code).sum()):,} {code.name.lower().replace('_', ' ')}"
        for code in Status
        if code != Status.DONE and (store.status == code).any()
    )
    arrays = "\n".join(
        f"| `{array}` | {' × '.join(map(str, values['shape']))} | {values['dtype']} "
        f"| {values['bytes']:,} | {values['meaning']} |"
        for array, values in facts["arrays"].items()
    )
    first = next(iter(facts["arrays"]))
    padding = ""
    if any(spec.padded for spec in store.specs):
        padding = "; so are the last frames of a clip that has fewer than the backbone takes"
    return f"""# {facts["name"]}: features of {facts["manifest"]}

Features of {rows["all"]:,} items of the manifest {facts["manifest"]}, computed with the backbone
{backbone["name"]} by {facts["software"]}. {rows["done"]:,} rows are done{
        f"; {counts}" if counts else ""
    }. The store contains no media.

| array | shape | type | bytes | meaning |
|---|---|---|---:|---|
{arrays}

Row *i* of each array is item *i* of `items.csv` and of `rows.csv`, which has each row's status.
Rows that are not done are NaN, or -1 in integer arrays{padding}.

## How it was made

- backbone: {backbone["name"]}, revision {backbone.get("revision") or "not stated"}
- weights, SHA-256: `{backbone["weights_sha256"]}`
- precision: {facts["precision"]}
- items, digest: `{facts["items_digest"]}`
- preprocessing:

```json
{json.dumps(facts["preprocessing"], indent=2, ensure_ascii=False)}
```

The backbone's own settings are in `zarr.json`, under `attributes.obygaze.backbone.config`.

## Licence and citation

- licence: {facts["licence"] or "not stated"}
- citation: {facts["citation"] or "not stated"}

## How to read it

With obygaze, by id:

```python
from obygaze_features.store import open_store

store = open_store("{name}")
ids = store.done_ids()[:10]
rows = store.read("{first}", ids)
```

With any reader of Zarr version 3:

```python
import zarr

group = zarr.open_group("{name}", mode="r")
rows = group["{first}"][:]
ids = [bytes(row).rstrip(b"\\0").decode() for row in group["ids"][:]]
```

With xarray, from a folder or a URL:

```python
import xarray

dataset = xarray.open_zarr("{name}").set_xindex("id")
row = dataset["{first}"].sel(id=dataset["id"].values[0])
```

## Is it complete?

`checksums.json` lists the SHA-256 of every file, and every chunk ends in a CRC-32C of its own.
`obygaze stores verify {name}` checks both, and lists the rows that are damaged, if any.
"""


def _croissant(
    folder: Path, facts: Mapping[str, Any], checksums: Mapping[str, str]
) -> dict[str, Any]:
    rows, backbone = facts["rows"], facts["backbone"]
    files = sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )
    listed = [name for name in files if name not in (fmt.LOG, fmt.CARD, fmt.CROISSANT)]
    described = {
        "@context": json.loads(_CONTEXT.read_text(encoding="utf-8")),
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": facts["name"],
        "description": (
            f"Features of {rows['all']} items of {facts['manifest']} ({rows['done']} done), "
            f"computed with the backbone {backbone['name']} (weights SHA-256 "
            f"{backbone['weights_sha256']}) in {facts['precision']}. A Zarr v3 group: "
            + "; ".join(
                f"{name} {array['shape']} {array['dtype']}, {array['meaning']}"
                for name, array in facts["arrays"].items()
            )
            + "."
        ),
        "version": f"{facts['format_version']}.0.0",
        "distribution": [_describe_file(folder, name, checksums) for name in listed],
        "recordSet": [
            _describe_table(folder, "rows", fmt.ROWS),
            _describe_table(folder, "items", fmt.ITEMS),
        ],
    }
    optional = {"license": facts["licence"], "citeAs": facts["citation"]}
    return {**described, **{key: value for key, value in optional.items() if value}}


def _describe_file(folder: Path, name: str, checksums: Mapping[str, str]) -> dict[str, Any]:
    path = folder / name
    return {
        "@type": "cr:FileObject",
        "@id": name,
        "name": name,
        "contentUrl": name,
        "contentSize": f"{path.stat().st_size} B",
        "encodingFormat": _MEDIA_TYPES.get(path.suffix, "application/octet-stream"),
        "sha256": checksums.get(name) or sha256_of(path),
    }


def _describe_table(folder: Path, name: str, file: str) -> dict[str, Any]:
    columns = list(read_table(folder / file).columns)
    return {
        "@type": "cr:RecordSet",
        "@id": name,
        "name": name,
        "key": {"@id": f"{name}/id"},
        "field": [
            {
                "@type": "cr:Field",
                "@id": f"{name}/{column}",
                "name": column,
                "description": _MEANINGS.get(column, "As in the source of the manifest."),
                "dataType": "sc:Integer" if (name, column) == ("rows", "status") else "sc:Text",
                "source": {"fileObject": {"@id": file}, "extract": {"column": column}},
            }
            for column in columns
        ],
    }
