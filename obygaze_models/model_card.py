"""A model's README: what it tells apart, from what, for whom, and what it must not be taken for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from obygaze_features.manifests import Manifest

__all__ = ["CARD", "model_card"]

CARD = "README.md"


def model_card(name: str, about: Mapping[str, Any], manifest: Manifest) -> str:
    """The card of a model, by what was said when it was saved."""
    features = about["features"]
    backbone = features["backbone"]
    synthetic = backbone.get("config", {}).get("synthetic")
    warning = (
        f"\n**Not a real model: its features were made with {synthetic}.**\n" if synthetic else ""
    )
    negative, *_, positive = about["classes"]
    pooled = f", {features['pooling']} over its tokens" if features["pooling"] else ""
    options = ", ".join(f"{key} = {value}" for key, value in about["options"].items())
    return f"""# {name}: {about["task"]}
{warning}
Tells {", ".join(about["classes"])} apart, clip by clip, from features of a film clip. Made by
`obygaze models train`; `obygaze models predict` asks it.

- estimator: {about["estimator"]}{f" ({options})" if options else ""}
- features: `{features["array"]}`{pooled}, of the backbone {backbone["name"]}, weights SHA-256
  `{backbone["weights_sha256"]}`; others are refused
- trained and stopped on {len(about["seen"]):,} clips of {manifest.name}, named in `model.json`
- annotations: {manifest.licence or "licence not stated"}. {manifest.citation or ""}

## What it chose

```json
{json.dumps(about["facts"], indent=1)[:4000]}
```

## What to beware of

- It was not tested: `obygaze models run` says how well such a model does on clips that it has
  not seen.
- "{positive}" is what annotators of these films called so, under their definition; "{negative}" is
  not the absence of anything else. Films of other times and places were not among them.
- A probability is the model's, not an annotator's. It is meant for reading film collections in
  bulk, not for judging a film or a person.
"""
