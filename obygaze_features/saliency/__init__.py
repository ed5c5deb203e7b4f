"""Where in an image a network looks when it is asked how near the image is to a text."""

from __future__ import annotations

from obygaze_features.saliency.grad_cam import Seer, grad_cam, load_seer
from obygaze_features.saliency.maps import Saliency, write_saliency

__all__ = ["Saliency", "Seer", "grad_cam", "load_seer", "write_saliency"]
