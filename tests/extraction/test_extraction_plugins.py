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
from obygaze_features.backbones.preprocess import CLIP_TORCHVISION
from obygaze_features.backbones.readers import FrameReader
from obygaze_features.errors import BackboneError, StoreError, UsageError
from obygaze_features.sampling import Sampling
from obygaze_features.store import ArraySpec
from tests.kit.films import clips, everything
from tests.kit.floats import close

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
'''
#: The difference of a class from `Colours`, and the reason that it is refused.
BROKEN = {
    "def __new__(self, mode): return 3": "must make a Backbone .got int.",
    "encode = lambda s, *a: {'native': torch.ones(1, 3)}": "does not return the array max",
    "encode = lambda s, p, *a: {k: torch.ones(len(p), 4) for k in ('native', 'max')}":
        r"native has shape \(1, 4\), expected \(1, 3\)",
}  # fmt: skip


@pytest.fixture
def mylab(install):
    classes = [f"class C{n}(Colours):\n    {body}\n" for n, body in enumerate(BROKEN)]
    broken = {"raising.py": "\nraise KeyError('weights')\n", "unparsed.py": "def :\n"}
    return install({"nets.py": NETS + "\n".join(classes), **broken})


@pytest.mark.night
def test_a_class_extracts_by_its_address(mylab, manifest, films, tmp_path):
    specs = ["mylab.nets:Colours", "mine=mylab.nets:Colours"]
    options = {"limit": 6, "arrays": ["native"], "preprocessing": "author"}
    summary = of.extract(manifest, films, specs, tmp_path, **options)
    assert (summary.done, summary.failed) == (6, {})
    assert [path.name for path in summary.stores] == ["Colours.zarr", "mine.zarr"]
    stores = [of.open_store(path) for path in summary.stores]
    ids = manifest.ids[:6]
    np.testing.assert_array_equal(*(store.read("native", ids=ids) for store in stores))
    for store in stores:
        assert "max" not in store.arrays
        about = store.attributes["backbone"]
        assert (about["package"], about["config"]) == ("mylab 0.1.0", {"mode": "author"})
        assert about["family"] == "mylab.nets:Colours"


def test_an_unusable_class_is_refused_with_the_reason(mylab, manifest, films, tmp_path):
    reasons = {f"mylab.nets:C{number}": reason for number, reason in enumerate(BROKEN.values())}
    reasons["mylab.nets:Colors"] = "has no attribute 'Colors'"
    reasons["mylab.nets:CALLS"] = "CALLS cannot be made: TypeError: "
    reasons["mylab.lost:Net"] = "mylab.lost:Net cannot be imported"
    reasons["mylab.raising:Net"] = r"cannot be imported: KeyError: 'weights' .mylab/raising.py:2."
    reasons["mylab.unparsed:Net"] = r"cannot be imported: SyntaxError: .*unparsed.py, line 1.$"
    for spec, reason in reasons.items():
        with pytest.raises(BackboneError, match=reason) as caught:
            of.extract(manifest, films, spec, tmp_path, limit=3)
        assert "\n" not in str(caught.value)
    assert not list(tmp_path.glob("*.zarr"))


def shrink(frame: torch.Tensor) -> torch.Tensor:
    return interpolate(frame[None].float() / 255, (16, 16))[0]


def small_net(dims: int = 2) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        conv = nn.Conv3d(3, 4, (2, 4, 4), (2, 4, 4)) if dims == 3 else nn.Conv2d(3, 4, 4, 4)
        pool = nn.AdaptiveAvgPool3d(1) if dims == 3 else nn.AdaptiveAvgPool2d(1)
        return nn.Sequential(conv, pool, nn.Flatten(), nn.Linear(4, 5))


def test_objects_of_a_notebook_can_extract(films, tmp_path):
    make, manifest = of.Backbone.from_torch, clips("clip5.mp4")
    image, video = small_net(), small_net(3)

    def our_net():
        credit = {"licence": "MIT", "paper": "https://x.org/p"}
        return make(video, frames=8, transform=shrink, layout="BCTHW", **credit)

    native = ArraySpec("native", (3,), "float32", "mean colour")
    colour = of.Backbone(
        nn.Identity(),
        clip=FrameReader(
            Sampling(2),
            CLIP_TORCHVISION.at(8),
            (native,),
            lambda pixels, present, names: {"native": pixels.mean((1, 3, 4))},
        ),
    )
    options = {"layout": "BCTHW", "layer": "0", "name": "layer"}
    layer = make(video, frames=8, transform=shrink, **options)
    summary = of.extract(
        manifest, films, [make(image, transform=shrink), our_net, colour, layer], tmp_path
    )
    stores = {path.stem: of.open_store(path) for path in summary.stores}
    assert [*stores] == ["Sequential", "our_net", "Identity", "layer"]
    rows = {name: store["clip5"] for name, store in stores.items()}
    seen = [shrink(torch.from_numpy(p).permute(2, 0, 1)) for p in everything(films / "clip5.mp4")]
    eight, sixteen = (torch.stack([seen[i * 40 // n] for i in range(n)]) for n in (8, 16))
    with torch.no_grad():
        frames, clip = image.eval()(sixteen), video.eval()(eight.transpose(0, 1)[None])[0]
        steps = video[0](eight.transpose(0, 1)[None]).mean((-1, -2))[0].T
    for name, values in (("Sequential", frames), ("layer", steps)):
        np.testing.assert_allclose(rows[name]["frames"], values, atol=2e-3)
        np.testing.assert_allclose(rows[name]["native"], values.mean(0), atol=1e-5)
    np.testing.assert_allclose(rows["our_net"]["native"], clip, atol=1e-5)
    assert "frames" not in rows["our_net"]
    about = stores["our_net"].attributes["backbone"]
    keys = ("name", "family", "licence", "citation", "paper")
    assert [about.get(key) for key in keys] == ["our_net", "own", "MIT", None, "https://x.org/p"]
    assert len({store.attributes["backbone"]["weights_sha256"] for store in stores.values()}) == 3
    maps = make(nn.Identity(), frames=8, transform=shrink, layout="BTCHW")
    assert {spec.name: spec.shape for spec in maps.arrays} == {"native": (3,), "frames": (8, 3)}
    with torch.no_grad():
        video[0].weight += 1
    with pytest.raises(StoreError, match=r"differs in backbone\.weights_sha256"):
        of.extract(manifest, films, our_net, tmp_path)
    for error, options, reason in (
        (UsageError, {"layer": "conv"}, "unknown layer 'conv'; choose from"),
        (UsageError, {"layout": "BTHW"}, "unknown layout 'BTHW'"),
        (BackboneError, {}, "as BCHW: RuntimeError: .*; set frames, size, transform or layout"),
        (IndexError, {"transform": lambda frame: frame[9]}, "index 9 is out of bounds"),
    ):
        with pytest.raises(error, match=reason) as caught:
            make(video, **options)
        assert "\n" not in str(caught.value)
    image.forward = lambda pixels: {"tokens": pixels}
    with pytest.raises(BackboneError, match=r"its output must be a tensor \(got dict\)"):
        make(image)
    with pytest.raises(UsageError, match=r"of.Backbone.from_torch\(net, frames="):
        of.load_backbone(video)


@pytest.mark.night
def test_at_a_rate_only_arrays_of_frames_are_filled(films, tmp_path):
    """A network of single frames embeds frames only, so it has no other arrays."""
    names = {"native": "mean colour", "max": "brightest", "cls": "something else"}
    preprocessing = of.Backbone.from_torch(small_net(), transform=shrink).clip.preprocessing
    lab = of.Backbone(
        nn.Identity(),
        clip=FrameReader(
            Sampling(2),
            preprocessing,
            tuple(ArraySpec(name, (3,), "float32", meaning) for name, meaning in names.items()),
            lambda pixels, present, wanted: {
                "native": pixels.mean((1, 3, 4)),
                "max": pixels.mean((3, 4)).amax(1),
                "cls": 10 + pixels.mean((1, 3, 4)),
            },
            embed_frames=lambda pixels: pixels.mean((2, 3)),
        ),
        name="lab",
    )
    manifest, fast = clips("clip5.mp4"), {"sampling": "24 fps"}
    with pytest.raises(UsageError, match=r"^lab has no array 'cls'; it has native, max, frames$"):
        of.extract(manifest, films, lab, tmp_path / "s", arrays=["native", "lab:cls"], **fast)
    assert not (tmp_path / "s").exists()
    own = of.extract(manifest, films, lab, tmp_path / "own")
    row = of.open_store(own.stores[0])["clip5"]
    assert row["cls"] == close(10 + row["native"], eps=1e-6)

    summary = of.extract(manifest, films, lab, tmp_path / "s", **fast)
    store = of.open_store(summary.stores[0])
    assert store.arrays == ["native", "max", "frames", "frame_index", "frame_time"]
    seen = [shrink(torch.from_numpy(p).permute(2, 0, 1)) for p in everything(films / "clip5.mp4")]
    colours, row = torch.stack(seen).mean((2, 3)), store["clip5"]
    np.testing.assert_allclose(row["frames"][: len(seen)], colours, atol=2e-3)
    np.testing.assert_allclose(row["native"], colours.mean(0), atol=1e-5)
    np.testing.assert_allclose(row["max"], colours.amax(0), atol=1e-5)


def fake_timm() -> SimpleNamespace:
    """Return the part of timm that is used; it is not always installed."""
    config = {"input_size": (3, 16, 16), "crop_pct": 0.8, "crop_mode": "center",
              "interpolation": "bilinear", "mean": (0.5,) * 3, "std": (0.25,) * 3}  # fmt: skip

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
    specs = ["timm:small", "first=timm:small@0", "timm:small.random"]
    summary = of.extract(clips("clip5.mp4"), films, specs, tmp_path)
    stores = [of.open_store(path) for path in summary.stores]
    assert [path.stem for path in summary.stores] == ["small", "first", "small.random"]
    abouts = [store.attributes["backbone"] for store in stores]
    assert [about["config"].get("layer") for about in abouts] == [None, "0", None]
    assert ["synthetic" in about["config"] for about in abouts] == [False, False, True]
    assert [about.get("licence") for about in abouts] == ["apache-2.0", "apache-2.0", None]
    pixels = []
    for picture in everything(films / "clip5.mp4")[[i * 40 // 32 for i in range(32)]]:
        scaled = Image.fromarray(picture).resize((26, 20), Image.Resampling.BILINEAR)
        middle = np.asarray(scaled.crop((5, 2, 21, 18)))
        pixels.append(torch.from_numpy(middle.copy()).permute(2, 0, 1) / 255)
    with torch.no_grad():
        expected = small_net()[:3]((torch.stack(pixels) - 0.5) / 0.25)
    for store in stores:  # its first layer's mean is the same
        np.testing.assert_allclose(store["clip5"]["frames"], expected, atol=0.03)
    with pytest.raises(BackboneError, match=r"smal cannot be loaded \(no smal here\)\."):
        of.load_backbone("timm:smal")
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(BackboneError, match="pip install timm"):
        of.load_backbone("timm:small")
