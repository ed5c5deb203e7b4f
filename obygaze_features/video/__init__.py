"""Decode the frames and the sound of film clips. Needs PyAV."""

from obygaze_features.common.package import need

need("av", extra="extract")
