"""The doctor against package metadata."""

from importlib import metadata

import pytest
import torch


def test_every_extra_is_a_job(obygaze) -> None:
    about = obygaze("doctor", code=0).stdout
    extras = set(metadata.metadata("obygaze").get_all("Provides-Extra"))
    for extra in extras - {"all", "bench", "dev", "docs"}:
        assert extra in about
    assert torch.__version__ in about


def test_missing_and_old_packages_are_named(monkeypatch: pytest.MonkeyPatch, obygaze) -> None:
    changed = {"av": "", "pillow": "2.0.1"}
    real = metadata.version

    def version(name: str) -> str:
        if changed.get(name) == "":
            raise metadata.PackageNotFoundError(name)
        return changed.get(name) or real(name)

    monkeypatch.setattr(metadata, "version", version)
    assert "av>=18, pillow>=10.1" in obygaze("doctor", code=0).stdout
    changed["zarr"] = ""
    obygaze("doctor", code=1)
