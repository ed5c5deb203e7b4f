"""VideoMAE (Tong et al., 2022) in Hugging Face's form: tubelets of 2 x 16 x 16, no class token."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from obygaze_features.backbones.backbone import Backbone, Family, published
from obygaze_features.backbones.network_config import tensor_shapes
from obygaze_features.backbones.vivit import count_steps, tubelet_arrays, tubelet_backbone
from obygaze_features.backbones.weights import load_folder, weight_files
from obygaze_features.common.package import need
from obygaze_features.store import ArraySpec


def videomae_arrays(
    steps: int, patches: int, width: int, *, finetuned: bool
) -> tuple[ArraySpec, ...]:
    """Return VideoMAE's arrays, of `patches` tubelets in each of `steps` time steps."""
    native = "`mean`, after the classifier's layer norm" if finetuned else "the same as `mean`"
    return tubelet_arrays(steps, patches, width, native=native, order="moment by moment")


def load(path: Path, mode: str) -> Backbone:
    """Load a VideoMAE, pretrained or fine-tuned, from a folder in Hugging Face's layout."""
    need("transformers", extra="extract")
    # Only the weights tell if it is fine-tuned; config.json may be that of its origin.
    tensors = tensor_shapes(weight_files(path))
    # The trunk has a last layer norm only if the classifier does not take a mean before it.
    has_last_norm = any(name.removeprefix("videomae.") == "layernorm.weight" for name in tensors)
    pooling: dict[str, Any] = {"use_mean_pooling": False} if has_last_norm else {}
    norm = None
    if any(name.startswith(("classifier.", "fc_norm.")) for name in tensors):
        name = "VideoMAEForVideoClassification"
        classifier, fields = load_folder(path, mode, name, **pooling)
        model, norm = classifier.videomae, classifier.fc_norm
    else:
        model, fields = load_folder(path, mode, "VideoMAEModel", **pooling)
    settings = model.config
    steps = count_steps(settings.num_frames, settings.tubelet_size, path)
    patches = model.embeddings.num_patches // steps
    arrays = videomae_arrays(steps, patches, settings.hidden_size, finetuned=norm is not None)
    return tubelet_backbone(
        model,
        settings.num_frames,
        arrays,
        fields,
        head=norm,
        embed=lambda output, mean: norm(mean) if norm else mean,
    )


FAMILY = Family("videomae", "videomae", published("videomae", videomae_arrays), load)
