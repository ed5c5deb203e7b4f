"""The commands about backbones, as a user types them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from obygaze_features.backbones import families, known_checkpoints, load_backbone

SHIPPED = ("tiny-xclip", "tiny-vivit", "tiny-xclip-lsmdc")


def test_backbones_are_listed_with_their_sources_and_sizes(obygaze):
    lines = obygaze("features", "backbones").stdout.splitlines()
    rows = {line.split()[0]: line for line in lines if line and not line.startswith(" ")}
    for name, checkpoint in known_checkpoints().items():
        assert f"{checkpoint.bytes_per_clip:,} B" in rows[name]
        is_file = not checkpoint.write and not checkpoint.repository
        source = f"{name}=FILE" if is_file else checkpoint.repository or "no download"
        assert source in rows[name]
    assert sum(line.endswith("(only on request)") for line in lines) == len(families())


def test_the_list_can_be_read_by_a_script(obygaze):
    listed = json.loads(obygaze("features", "backbones", "--json").stdout)
    assert list(listed) == list(known_checkpoints())
    paper = listed["xclip-kinetics"]
    assert paper["repository"] == "microsoft/xclip-base-patch16-zero-shot"
    assert paper["frames"] == 32
    assert paper["bytes_a_clip"] == 3 * 512 * 4 + 2 * 32 * 512 * 2
    assert paper["arrays"]["tokens"]["shape"] == [32 * 197, 768]
    reading = {name for name, card in listed.items() if card["images_and_texts"]}
    assert {name for name in reading if name.startswith("tiny-")} == {"tiny-xclip"}
    assert {"clip-vit-base-patch32", "xclip-kinetics", "openclip-vit-base-patch32"} < reading
    seeing = {name for name, card in listed.items() if card["images"]}
    assert {"dinov2-base", "dinov3-vitb16-pretrain-lvd1689m"} < seeing - reading
    assert reading < seeing
    sizes = {
        "vjepa2-vitl-fpc64-256": (64, [32, 1024], [8192, 1024]),
        "vjepa2-vitg-fpc32-384-diving48": (32, [16, 1408], [9216, 1408]),
        "timesformer-hr-finetuned-k400": (16, [16, 768], [1 + 16 * 784, 768]),
        "dinov2-large": (32, [32, 1024], [32 * 257, 1024]),
        "dinov3-vits16-pretrain-lvd1689m": (32, [32, 384], [32 * 201, 384]),
    }
    for name, (frames, kept, tokens) in sizes.items():
        arrays = listed[name]["arrays"]
        assert (listed[name]["frames"], arrays["frames"]["shape"]) == (frames, kept)
        assert (arrays["tokens"]["shape"], listed[name]["repository"]) == (
            tokens,
            f"facebook/{name}",
        )
    without = {name for name, card in listed.items() if not card["needs_download"]}
    assert without == set(SHIPPED)


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
        made = obygaze("features", "make-weights", name, tmp_path / name)
        assert made.exit_code == 0
        assert made.stdout == f"SYNTHETIC {name} with random weights in {tmp_path / name}\n"
        assert load_backbone(str(tmp_path / name), "cpu").arrays
    again = obygaze("features", "make-weights", "tiny-xclip", tmp_path / "tiny-xclip")
    assert (again.exit_code, "exists already" in again.stderr) == (1, True)
    wrong = obygaze("features", "make-weights", "vivit", tmp_path / "new")
    assert (wrong.exit_code, "use one of tiny-xclip" in wrong.stderr) == (2, True)


@pytest.mark.gate
def test_writing_random_weights_is_silent(tmp_path):
    """In a fresh interpreter: transformers speaks to the stream that it found first."""
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


def test_what_needs_no_download_can_be_prefetched_too(obygaze, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    result = obygaze("features", "prefetch", "tiny-vivit", "tiny-xclip")
    assert result.exit_code == 0
    places = dict(line.split(": ") for line in result.stdout.splitlines())
    assert list(places) == ["tiny-vivit", "tiny-xclip"]
    assert all((Path(place) / "model.safetensors").is_file() for place in places.values())


def test_what_cannot_be_prefetched_is_one_line(obygaze):
    for name, code, reason in (
        ("resnet", 2, "resnet cannot be downloaded"),
        ("xclip-lsmdc", 1, "xclip-lsmdc cannot be downloaded: no public download is known"),
        ("vivit", 1, "google/vivit-b-16x2-kinetics400 is not in the hub's cache"),
    ):
        result = obygaze("features", "prefetch", name)
        assert result.exit_code == code
        assert reason in result.stderr
