"""Backbones: frozen networks that embed clips, images and texts.

Names are imported on first use, so a process that only decodes films does not import torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
