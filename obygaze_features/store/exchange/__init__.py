"""Stores on the move: packed into one file, as other formats, and out of them."""

from __future__ import annotations

from obygaze_features.store.exchange.clip_folders import ClipFolders
from obygaze_features.store.exchange.hdf5 import export_hdf5
from obygaze_features.store.exchange.incoming import Source, bring_in
from obygaze_features.store.exchange.incoming_hdf5 import Hdf5Source
from obygaze_features.store.exchange.matrices import (
    MatrixSource,
    npy_source,
    parquet_source,
    read_ids,
    safetensors_source,
)
from obygaze_features.store.exchange.npy import npy_folders
from obygaze_features.store.exchange.outgoing import Exported
from obygaze_features.store.exchange.pack import Packed, pack
from obygaze_features.store.exchange.parquet import export_parquet
from obygaze_features.store.exchange.provenance import Provenance, read_provenance, stated
from obygaze_features.store.exchange.pth import pth_folders
from obygaze_features.store.exchange.pull import Pulled, pull
from obygaze_features.store.exchange.push import Pushed, push
from obygaze_features.store.exchange.unpack import unpack

__all__ = [
    "ClipFolders",
    "Exported",
    "Hdf5Source",
    "MatrixSource",
    "Packed",
    "Provenance",
    "Pulled",
    "Pushed",
    "Source",
    "bring_in",
    "export_hdf5",
    "export_parquet",
    "npy_folders",
    "npy_source",
    "pack",
    "parquet_source",
    "pth_folders",
    "pull",
    "push",
    "read_ids",
    "read_provenance",
    "safetensors_source",
    "stated",
    "unpack",
]
