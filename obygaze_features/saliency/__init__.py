"""Saliency: the parts of an image that a network uses to compare the image with a text."""

from __future__ import annotations

from obygaze_features.saliency.maps import (
    GradCamModel,
    SaliencyResult,
    grad_cam,
    load_grad_cam_model,
    write_saliency,
)

__all__ = ["GradCamModel", "SaliencyResult", "grad_cam", "load_grad_cam_model", "write_saliency"]
