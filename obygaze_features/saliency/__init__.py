"""Where in an image a network looks when it compares the image with a text."""

from __future__ import annotations

from obygaze_features.saliency.grad_cam import GradCamModel, grad_cam, load_grad_cam_model
from obygaze_features.saliency.maps import SaliencyResult, write_saliency

__all__ = ["GradCamModel", "SaliencyResult", "grad_cam", "load_grad_cam_model", "write_saliency"]
