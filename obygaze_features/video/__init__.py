"""Turn a film clip into frames: which frames, and their pixels. Needs PyAV."""

from obygaze_features.common.package import need

need("av", extra="extract")
