"""Backbones of your own: classes by address, objects of a notebook, and timm's networks."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.nn.functional import interpolate

import obygaze_features as of
from obygaze_features.errors import BackboneError, StoreError, UsageError
from tests.kit.films import clips, everything

NETS = '''
import torch
from obygaze_features.backbones.backbone import Backbone
from obygaze_features.backbones.preprocess import CLIP_TORCHVISION
from obygaze_features.backbones.readers import FrameReader
from obygaze_features.sampling import Sampling
from obygaze_features.store import ArraySpec

CALLS = []

class Colours(Backbone):
    """The mean colour of each frame."""
    def __init__(self, mode):
        arrays = (ArraySpec("native", (3,), "float32", "mean colour"),
                  ArraySpec("max", (3,), "float32", "brightest"))
        clip = FrameReader(Sampling(2), CLIP_TORCHVISION.at(8), arrays, self.encode)
        super().__init__(torch.nn.Identity(), clip=clip, config={"mode": mode})

    @staticmethod
    def encode(pixels, present, wanted):
        return {"native": pixels.mean((1, 3, 4)), "max": pixels.amax((1, 3, 4))}

class Short(Colours):
    encode = lambda s, *a: {'native': torch.ones(1, 3)}

class Wide(Colours):
    encode = lambda s, p, *a: {k: torch.ones(len(p), 4) for k in ('native', 'max')}

def three():
    return 3
'''
#: Addresses that make no usable backbone, and the reasons.
BROKEN = {
    "nets:three": "must make a Backbone .got int.",
    "nets:Short": "does not return the array max",
    "nets:Wide": r"native has shape \(1, 4\), not \(1, 3\)",
    "nets:Colors": "has no attribute 'Colors'",
    "nets:CALLS": "CALLS made no backbone: TypeError: ",
    "lost:Net": "mylab.lost:Net cannot be imported",
    "raising:Net": r"cannot be imported: KeyError: 'weights' .mylab/raising.py:2.",
}


@pytest.fixture
def mylab(install):
    return install({"nets.py": NETS, "raising.py": "\nraise KeyError('weights')\n"})


@pytest.mark.parametrize("address", BROKEN)
def test_an_unusable_class_is_refused_with_the_reason(mylab, films, tmp_path, address):
    with pytest.raises(BackboneError, match=BROKEN[address]) as caught:
        of.extract(clips("clip0.mp4"), films, f"mylab.{address}", tmp_path)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.glob("*.zarr"))


def shrink(frame: torch.Tensor) -> torch.Tensor:
    return interpolate(frame[None].float() / 255, (16, 16))[0]


def small_net(dims: int = 2) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        if dims == 3:
            conv = nn.Conv3d(3, 4, (2, 4, 4), (2, 4, 4))
            pool = nn.AdaptiveAvgPool3d(1)
        else:
            conv = nn.Conv2d(3, 4, 4, 4)
            pool = nn.AdaptiveAvgPool2d(1)
        return nn.Sequential(conv, pool, nn.Flatten(), nn.Linear(4, 5))


@pytest.fixture(scope="module")
def seen(films):
    """All frames of clip5, shrunk."""
    pictures = torch.from_numpy(everything(films / "clip5.mp4"))
    return torch.stack([shrink(picture) for picture in pictures.permute(0, 3, 1, 2)])


def test_networks_of_a_notebook_extract_by_themselves(films, seen, tmp_path):
    image = small_net()
    video = small_net(3)
    eight = {"frames": 8, "transform": shrink, "layout": "BCTHW"}

    def our_net():
        return of.Backbone.from_torch(video, **eight, licence="MIT")

    layer = of.Backbone.from_torch(video, **eight, layer="0", name="layer")
    backbones = [of.Backbone.from_torch(image, transform=shrink), our_net, layer]
    summary = of.extract(clips("clip5.mp4"), films, backbones, tmp_path)
    stores = {path.stem: of.open_store(path) for path in summary.stores}
    assert [*stores] == ["Sequential", "our_net", "layer"]
    rows = {name: store["clip5"] for name, store in stores.items()}

    chosen = seen[[i * 40 // 16 for i in range(16)]]
    batch = seen[::5].transpose(0, 1)[None]  # eight of 40 frames
    with torch.no_grad():
        clip = video.eval()(batch)[0]
        planes = video[0](batch)[0]
        expected = {"Sequential": image.eval()(chosen), "layer": planes.mean((2, 3)).T}
    for name, values in expected.items():
        np.testing.assert_allclose(rows[name]["frames"], values, atol=2e-3)
        np.testing.assert_allclose(rows[name]["native"], values.mean(0), atol=1e-5)
    np.testing.assert_allclose(rows["our_net"]["native"], clip, atol=1e-5)
    assert "frames" not in rows["our_net"]
    about = stores["our_net"].attributes["backbone"]
    assert about.items() > {"name": "our_net", "family": "own", "licence": "MIT"}.items()

    with torch.no_grad():
        video[0].weight += 1
    with pytest.raises(StoreError, match=r"differs in backbone\.weights_sha256"):
        of.extract(clips("clip5.mp4"), films, our_net, tmp_path)


@pytest.mark.parametrize(
    ("error", "options", "reason"),
    [
        (UsageError, {"layer": "conv"}, "unknown layer 'conv'; choose from"),
        (UsageError, {"layout": "BTHW"}, "unknown layout 'BTHW'"),
        (
            BackboneError,
            {},
            "as BCHW: RuntimeError: .*; set layer, frames, size, transform",
        ),
    ],
)
def test_an_unusable_network_is_one_line(error, options, reason):
    with pytest.raises(error, match=reason) as caught:
        of.Backbone.from_torch(small_net(3), **options)
    assert "\n" not in str(caught.value)


def test_a_network_must_be_wrapped_and_return_a_tensor():
    image = small_net()
    image.forward = lambda pixels: {"tokens": pixels}
    with pytest.raises(BackboneError, match=r"its output must be a tensor \(got dict\)"):
        of.Backbone.from_torch(image)
    with pytest.raises(UsageError, match=r"of.Backbone.from_torch\(net, frames="):
        of.load_backbone(image)
    maps = of.Backbone.from_torch(nn.Identity(), frames=8, transform=shrink, layout="BTCHW")
    assert [spec.shape for spec in maps.arrays] == [(3,), (8, 3)]


def fake_timm() -> SimpleNamespace:
    """Return the part of timm that is used; it is not always installed."""
    config = {
        "input_size": (3, 16, 16),
        "crop_pct": 0.8,
        "crop_mode": "center",
        "interpolation": "bilinear",
        "mean": (0.5,) * 3,
        "std": (0.25,) * 3,
    }

    def create(name, **options):
        if name != "small":
            raise LookupError(f"no {name}\nhere")
        net = small_net()[:3]
        net.pretrained_cfg = {"license": "apache-2.0"}
        return net

    data = SimpleNamespace(resolve_model_data_config=lambda net: config)
    return SimpleNamespace(create_model=create, data=data)


def test_timms_networks_are_loaded_by_name(films, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", fake_timm())
    summary = of.extract(clips("clip5.mp4"), films, ["timm:small", "first=timm:small@0"], tmp_path)
    pixels = []
    rows = [i * 40 // 32 for i in range(32)]
    for picture in everything(films / "clip5.mp4")[rows]:
        scaled = Image.fromarray(picture).resize((26, 20), Image.Resampling.BILINEAR)
        middle = np.array(scaled.crop((5, 2, 21, 18)))
        pixels.append(torch.from_numpy(middle).permute(2, 0, 1) / 255)
    with torch.no_grad():
        expected = small_net()[:3]((torch.stack(pixels) - 0.5) / 0.25)
    for path, name in zip(summary.stores, ("small", "first"), strict=True):
        store = of.open_store(path)
        assert (path.stem, store.attributes["backbone"]["licence"]) == (name, "apache-2.0")
        # Its first layer's mean is the same.
        np.testing.assert_allclose(store["clip5"]["frames"], expected, atol=0.03)


def test_a_missing_network_or_package_of_timm_is_named(monkeypatch):
    for timm, facts in ((fake_timm(), r"\(no smal here\)\. .*pip install timm"), (None, "timm")):
        monkeypatch.setitem(sys.modules, "timm", timm)
        with pytest.raises(BackboneError, match=rf"smal cannot be loaded .*{facts}"):
            of.load_backbone("timm:smal")
