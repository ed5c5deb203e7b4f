"""V-JEPA 2 (Assran et al., 2025) in Hugging Face's form: tubelets of 2 x 16 x 16."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from obygaze_features.backbones.backbone import Backbone, Family, published
from obygaze_features.backbones.network_config import tensor_shapes
from obygaze_features.backbones.vivit import count_steps, tubelet_arrays, tubelet_backbone
from obygaze_features.backbones.weights import load_folder, weight_files
from obygaze_features.common.package import need
from obygaze_features.store import ArraySpec


def vjepa2_arrays(
    steps: int, patches: int, width: int, *, finetuned: bool
) -> tuple[ArraySpec, ...]:
    """Return V-JEPA 2's arrays, of `patches` tubelets in each of `steps` time steps."""
    native = "tokens, pooled by the classifier's attention" if finetuned else "the same as `mean`"
    return tubelet_arrays(steps, patches, width, native=native, order="moment by moment")


def load(path: Path, mode: str) -> Backbone:
    """Load a V-JEPA 2, pretrained or fine-tuned, from a folder in Hugging Face's layout."""
    need("transformers", extra="extract")
    # Only the weights tell if it is fine-tuned; config.json may be that of its origin.
    tensors = tensor_shapes(weight_files(path))
    pooler = None
    if any(name.startswith(("classifier.", "pooler.")) for name in tensors):
        name = "VJEPA2ForVideoClassification"
        classifier, fields = load_folder(path, mode, name, size="crop_size")
        model, pooler = classifier.vjepa2, classifier.pooler
    else:
        model, fields = load_folder(path, mode, "VJEPA2Model", size="crop_size")
    settings = model.config
    # Its processor always sets this edge, ignoring its configuration.
    fields["preprocessing"] = replace(
        fields["preprocessing"], shortest_edge=settings.crop_size * 256 // 224
    )
    frames = settings.frames_per_clip
    steps = count_steps(frames, settings.tubelet_size, path, "frames_per_clip")
    patches = (settings.crop_size // settings.patch_size) ** 2
    arrays = vjepa2_arrays(steps, patches, settings.hidden_size, finetuned=pooler is not None)
    return tubelet_backbone(
        model.encoder,  # without the predictor, which guesses the tokens of masked tubelets
        frames,
        arrays,
        fields,
        head=pooler,
        embed=lambda output, mean: pooler(output) if pooler else mean,
    )


FAMILY = Family("vjepa2", "vjepa2", published("vjepa2", vjepa2_arrays), load)
