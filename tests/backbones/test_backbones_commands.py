"""The commands about backbones, and checkpoints of random weights."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import obygaze_features as of
from obygaze_features.backbones import families, known_checkpoints
from obygaze_features.backbones.weights import write_random_weights
from obygaze_features.errors import OutputExists

SHIPPED = ["tiny-xclip", "tiny-vivit", "tiny-xclip-lsmdc"]
SIZES = {
    # Frames, shapes of frames and of tokens.
    "vjepa2-vitl-fpc64-256": (64, [32, 1024], [8192, 1024]),
    "vjepa2-vitg-fpc32-384-diving48": (32, [16, 1408], [9216, 1408]),
    "timesformer-hr-finetuned-k400": (16, [16, 768], [1 + 16 * 784, 768]),
    "dinov2-large": (32, [32, 1024], [32 * 257, 1024]),
    "dinov3-vits16-pretrain-lvd1689m": (32, [32, 384], [32 * 201, 384]),
}


def test_backbones_are_listed_for_people_and_scripts(obygaze):
    lines = obygaze("features", "backbones").stdout.splitlines()
    rows = {line.split()[0]: line for line in lines if line and not line.startswith(" ")}
    for name, checkpoint in known_checkpoints().items():
        assert f"{checkpoint.bytes_per_clip:,} B" in rows[name]
        is_file = not checkpoint.write and not checkpoint.repository
        source = f"{name}=FILE" if is_file else checkpoint.repository or "no download"
        assert source in rows[name]
    assert sum(line.endswith("(only on request)") for line in lines) == len(families())

    cards = json.loads(obygaze("features", "backbones", "--json").stdout)
    assert list(cards) == list(known_checkpoints())
    paper = cards["xclip-kinetics"]
    assert paper["repository"] == "microsoft/xclip-base-patch16-zero-shot"
    assert (paper["frames"], paper["bytes_a_clip"]) == (32, 3 * 512 * 4 + 2 * 32 * 512 * 2)
    for name, (frames, shape, tokens) in SIZES.items():
        card, arrays = cards[name], cards[name]["arrays"]
        assert (card["frames"], card["repository"]) == (frames, f"facebook/{name}")
        assert (arrays["frames"]["shape"], arrays["tokens"]["shape"]) == (shape, tokens)
    texts = {name for name, card in cards.items() if card["images_and_texts"]}
    images = {name for name, card in cards.items() if card["images"]}
    assert {"tiny-xclip", "clip-vit-base-patch32", "openclip-vit-base-patch32"} < texts < images
    assert {"dinov2-base", "dinov3-vitb16-pretrain-lvd1689m"} < images - texts
    assert not {"tiny-vivit", "tiny-xclip-lsmdc"} & images
    assert [name for name, card in cards.items() if not card["needs_download"]] == SHIPPED


def test_listing_loads_nothing_heavy():
    code = (
        "import sys; from cli import main\n"
        "try: main(['features', 'backbones'])\n"
        "except SystemExit: pass\n"
        "sys.exit(' '.join({'torch', 'transformers', 'huggingface_hub'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stderr.strip() == ""


def test_random_weights_are_written_and_loaded(obygaze, tmp_path):
    for name in SHIPPED:
        folder = tmp_path / name
        result = obygaze("features", "make-weights", name, folder)
        assert (result.exit_code, result.stderr) == (0, "")
        assert result.stdout == f"SYNTHETIC {name} with random weights in {folder}\n"
        assert of.load_backbone(folder, "cpu").arrays
    again = obygaze("features", "make-weights", "tiny-xclip", tmp_path / "tiny-xclip")
    assert (again.exit_code, "exists already" in again.stderr) == (1, True)
    wrong = obygaze("features", "make-weights", "vivit", tmp_path / "new")
    assert (wrong.exit_code, "use one of tiny-xclip" in wrong.stderr) == (2, True)
    (tmp_path / "films").mkdir()
    for overwrite in (False, True):
        with pytest.raises(OutputExists):
            write_random_weights(
                known_checkpoints()["tiny-xclip"].write, tmp_path / "films", overwrite=overwrite
            )


@pytest.mark.gate
def test_writing_random_weights_is_silent(tmp_path):
    """In a fresh interpreter: transformers writes to the stream that it found first."""
    code = (
        "import sys; from pathlib import Path\n"
        "from cli import main\n"
        "for name in sys.argv[2:]:\n"
        "    folder = Path(sys.argv[1]) / name\n"
        "    main(['features', 'make-weights', name, str(folder)], standalone_mode=False)\n"
    )
    command = [sys.executable, "-c", code, str(tmp_path), *SHIPPED]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert len(result.stdout.splitlines()) == len(SHIPPED)
    assert result.stderr == ""


def test_prefetch_prints_folders_or_the_reason(obygaze, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    result = obygaze("features", "prefetch", "tiny-vivit", "tiny-xclip")
    assert result.exit_code == 0
    folders = dict(line.split(": ") for line in result.stdout.splitlines())
    assert list(folders) == ["tiny-vivit", "tiny-xclip"]
    assert all((Path(folder) / "model.safetensors").is_file() for folder in folders.values())
    for name, code, reason in (
        ("resnet", 2, "resnet cannot be downloaded"),
        ("xclip-lsmdc", 1, "xclip-lsmdc cannot be downloaded: no public download is known"),
        ("vivit", 1, "google/vivit-b-16x2-kinetics400 is not in the hub's cache"),
    ):
        result = obygaze("features", "prefetch", name)
        assert (result.exit_code, reason in result.stderr) == (code, True)
