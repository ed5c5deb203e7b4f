"""Checkpoints that do not fit, the errors that users see, and that none is ever executed."""

import shutil

import pytest
import torch

import obygaze_features as of
from obygaze_features.errors import BackboneError, ObygazeError
from tests.backbones.conftest import ALWAYS, as_pickle, edit_json, edit_weights, in_shards
from tests.kit.files import touch, write
from tests.kit.models import SMALL_VISION
from tests.kit.store import Malice


def config(**changes):
    return lambda folder: edit_json(folder / "config.json", **changes)


def processor(**changes):
    return lambda folder: edit_json(folder / "preprocessor_config.json", **changes)


SLIPS = [
    ("tiny-xclip", config(model_type="bert"), "model_type 'bert'; supported types: xclip, vivit"),
    ("tiny-xclip", lambda folder: (folder / "model.safetensors").unlink(), "has no weights"),
    ("tiny-xclip", lambda folder: write(folder / "preprocessor_config.json", "[]"),
     "must hold a JSON object .got list"),
    ("tiny-xclip", processor(crop_size=16), r"crops to \(16, 16\), .* takes \(32, 32\)"),
    ("tiny-clap", processor(truncation="fusion"), "fusion.* Use .*laion/clap-htsat-unfused"),
    ("tiny-clap", processor(feature_size=20), r"\(1, 201, 20\).* network takes \(1, 201, 16\)"),
    ("tiny-clap", processor(padding="no"), "padding must be repeatpad"),
    ("tiny-clap", processor(hop_length="no"), "unusable setting"),
    ("tiny-clap", processor(max_length_s=10**5), r"windows of 100000 s at 16000 samples"),
    ("tiny-clap", processor(sampling_rate="16000"), "windows of 1 s at .16000. samples"),
    ("tiny-clap", processor(feature_extractor_type="Other"), "does not config.* ClapFeat"),
    ("tiny-vivit",
     lambda folder: edit_json(in_shards(folder) / "model.safetensors.index.json",
                              weight_map={"x": "../elsewhere.safetensors"}),
     "is not an index of weights"),
    ("tiny-vivit", config(num_frames=9),
     r"config\.json: num_frames must be a multiple .* 2 frames \(got 9\)"),
    ("tiny-siglip", config(vision_config=SMALL_VISION | {"vision_use_head": False}),
     "has no pooling head"),
    ("tiny-xclip-lsmdc",
     lambda folder: edit_weights(folder, lambda state: state.pop("frame_mat_weight")),
     "frame_mat_weight.*For any other"),
    ("tiny-xclip-lsmdc", lambda folder: edit_weights(folder, lambda state: state.update(
        {"clip.visual.positional_embedding": torch.zeros(16, 64)})),
     "impossible sizes for an X-CLIP: 15 patches"),
    ("tiny-xclip-lsmdc", lambda folder: touch(folder, "pytorch_model.bin.4"),
     "a config.json, .* exactly one pytorch_model.bin.N .got 2."),
]  # fmt: skip


@pytest.mark.parametrize("slip", [
    pytest.param(slip, id=f"{slip[0]}-{n}", marks=[] if slip[0] in cheap else pytest.mark.night)
    for cheap in [(*ALWAYS, "tiny-xclip-lsmdc")]
    for n, slip in enumerate(SLIPS)
])  # fmt: skip
def test_a_checkpoint_of_the_wrong_shape_is_one_line(copy, slip):
    name, change, facts = slip
    folder = copy(name)
    change(folder)
    with pytest.raises(BackboneError, match=facts) as caught:
        of.load_backbone(folder, "cpu")
    assert "\n" not in str(caught.value)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize("name", ["tiny-vivit", "tiny-xclip-lsmdc"])
def test_a_hostile_pickle_runs_no_code(copy, tmp_path, name):
    folder = copy(name)
    bomb = Malice(tmp_path / "trace")
    if name == "tiny-xclip-lsmdc":
        edit_weights(folder, lambda state: state.update(bomb=bomb))
    else:
        as_pickle(folder, folder, bomb=bomb)
        (folder / "model.safetensors").unlink()
    with pytest.raises(BackboneError, match="more than tensors") as caught:
        of.load_backbone(folder, "cpu")
    assert not bomb.trace.exists()
    assert "weights_only" not in str(caught.value)  # no advice to run it
    assert "\n" not in str(caught.value)
    # The same file does run code if it is unpickled.
    [file] = folder.glob("pytorch_model.bin*")
    torch.load(file, weights_only=False)
    assert bomb.trace.exists()


@pytest.mark.parametrize(("spec", "options", "facts"), [
    ("PATH", {"precision": "half"}, "unknown precision 'half'; use one of float32"),
    ("PATH", {"device": "cuda:99"}, "device 'cuda:99' cannot be used"),
    ("../mine=PATH", {}, "'../mine' is not a valid store name"),
    ("tiny-vivid", {}, "not a path; .*; did you mean tiny-vivit"),
    ("mine=nowhere/tiny", {}, "nowhere/tiny is not in the Hub's cache"),
])  # fmt: skip
def test_a_typing_error_is_one_line(checkpoints, tmp_path, monkeypatch, spec, options, facts):
    monkeypatch.chdir(tmp_path)
    spec = spec.replace("PATH", str(checkpoints["tiny-vivit"]))
    with pytest.raises(ObygazeError, match=facts) as caught:
        of.load_backbone(spec, **{"device": "cpu", **options})
    assert "\n" not in str(caught.value)


@pytest.mark.night
@pytest.mark.parametrize(("spec", "store", "name", "family"), [
    # The typed name, the name of the store, and the recorded name and family.
    ("tiny-vivit", "tiny-vivit", "tiny-vivit", "vivit"),
    ("mine=tiny-vivit", "mine", "tiny-vivit", "vivit"),
    ("mine=vivit", "mine", "mine", "xclip-lsmdc"),  # a folder before a known checkpoint
    ("vivit/pytorch_model.bin.0", "vivit", "vivit", "xclip-lsmdc"),
])  # fmt: skip
def test_names_come_from_the_user_or_the_folder(
    checkpoints, tmp_path, monkeypatch, spec, store, name, family
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    shutil.copytree(checkpoints["tiny-xclip-lsmdc"], "vivit")
    backbone = of.load_backbone(spec, "cpu")
    about = backbone.about
    assert (backbone.name, about["name"], about["family"]) == (store, name, family)
