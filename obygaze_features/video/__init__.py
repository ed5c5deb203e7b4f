"""From a film clip to frames: which ones, and their pixels. Needs PyAV."""

from obygaze_features.common.extras import need

need("av", extra="extract")
