"""Small checkpoints with random weights, and functions that change them."""

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

import obygaze_features as of
from tests.kit.models import Checkpoints

MISSING = 99.0


@pytest.fixture
def copy(checkpoints: Checkpoints, tmp_path: Path) -> Callable[[str], Path]:
    return lambda name: Path(shutil.copytree(checkpoints[name], tmp_path / name))


def pictures(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def noise(samples: int, seed: int = 0) -> NDArray[np.float32]:
    """Return sound that grows louder, around a mean that is not zero."""
    values = np.random.default_rng(seed).standard_normal(samples)
    swell = np.linspace(0.01, 0.2, samples)
    return (values * swell + 0.05).astype(np.float32)


def clips_for(backbone: Any, count: int = 2, sounds: Sequence[Any] = ()) -> torch.Tensor:
    """Return random clips, or the given sounds, as input; NaN after the end."""
    if "loudness" not in {spec.name for spec in backbone.clip.sampled}:
        return pictures(count, backbone.clip.sampling.frames, 3, 32, 32)
    samples = round(backbone.clip.sampling.window * backbone.clip.sampling.rate * 2.5)
    sounds = sounds or [noise(samples, seed) for seed in range(count)]
    clips = [backbone.clip.preprocessing.inputs(sound) for sound in sounds]
    ends = [torch.full((64 - len(clip), *clip.shape[1:]), torch.nan) for clip in clips]
    return torch.stack([torch.cat(parts) for parts in zip(clips, ends, strict=True)])


def run(backbone: of.Backbone, pixels: torch.Tensor, present: torch.Tensor) -> dict[str, Any]:
    assert backbone.clip
    return backbone.compute(backbone.clip, (pixels, present), len(pixels))


def embed(backbone: of.Backbone, pixels: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return arrays with `MISSING` in place of NaN, for `torch.equal`."""
    arrays = run(backbone, pixels, ~pixels.flatten(2).isnan().any(2))
    return {name: values.nan_to_num(MISSING) for name, values in arrays.items()}


def tensor(output: Any) -> torch.Tensor:
    """Return the tensor of `get_image_features` in transformers 4 and 5."""
    return output if isinstance(output, torch.Tensor) else output.pooler_output


def processed(folder: Path, frames: Any, **options: Any) -> torch.Tensor:
    """Return the output of the transformers processor, as [T,3,h,w]."""
    import transformers

    kind = json.loads((folder / "preprocessor_config.json").read_text())
    if "feature_extractor_type" in kind:
        from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

        processor = CLIPImageProcessorPil.from_pretrained(folder)
    elif kind["image_processor_type"] == "VivitImageProcessor":
        processor = transformers.VivitImageProcessor.from_pretrained(folder)
    else:
        processor = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")
    values = processor(list(frames), return_tensors="pt", **options)["pixel_values"]
    return values.reshape(-1, *values.shape[-3:]).float()


def edit_json(path: Path, **changes: Any) -> None:
    """Change a JSON file; None removes a key."""
    content = json.loads(path.read_text()) | changes
    kept = {key: value for key, value in content.items() if value is not None}
    path.write_text(json.dumps(kept))


def edit_weights(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    if (old := folder / "pytorch_model.bin.0").exists():
        tensors = torch.load(old, weights_only=True)
        change(tensors)
        torch.save(tensors, old)
        return
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


def shuffle_norms(folder: Path) -> None:
    """Replace the initial ones and zeros of layer norms with other weights."""
    random = torch.Generator().manual_seed(3)

    def change(tensors: dict[str, torch.Tensor]) -> None:
        for name in [name for name in tensors if "norm" in name and "num_" not in name]:
            tensors[name] = torch.randn(tensors[name].shape, generator=random)
            if "var" in name:
                tensors[name].abs_()

    edit_weights(folder, change)


def as_pickle(source: Path, folder: Path, **more: Any) -> None:
    """Write the weights of a checkpoint in PyTorch's old format, along with other objects."""
    torch.save(load_file(source / "model.safetensors") | more, folder / "pytorch_model.bin")


def in_shards(folder: Path) -> Path:
    """Write the weights in two files and an index, like large checkpoints."""
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    file_of = {}
    for number, name in enumerate(sorted(tensors)):
        file_of[name] = f"model-0000{1 + number % 2}-of-00002.safetensors"
    for file in set(file_of.values()):
        part = {name: tensors[name] for name in tensors if file_of[name] == file}
        save_file(part, folder / file, metadata={"format": "pt"})
    index = {"metadata": {}, "weight_map": file_of}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder
