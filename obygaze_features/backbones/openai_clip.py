"""CLIP's transformers, with OpenAI's names for weights, so that state dicts load directly."""

# mypy: allow-subclassing-any
# (torch's own types are not followed)

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, scaled_dot_product_attention

HEAD_WIDTH = 64
"""The width of an attention head in all CLIP models with this layout."""


class _Attention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.in_proj_weight = nn.Parameter(torch.empty(3 * width, width))
        self.in_proj_bias = nn.Parameter(torch.empty(3 * width))
        self.out_proj = nn.Linear(width, width)

    def forward(self, x: Tensor, visible: Tensor | None) -> Tensor:
        projected = linear(x, self.in_proj_weight, self.in_proj_bias).unflatten(
            -1, (3, -1, HEAD_WIDTH)
        )
        query, key, value = projected.permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(query, key, value, attn_mask=visible)
        out: Tensor = self.out_proj(mixed.transpose(1, 2).flatten(2))
        return out


class _Block(nn.Module):
    def __init__(self, width: int, eps: float) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(width, eps)
        self.attn = _Attention(width)
        self.ln_2 = nn.LayerNorm(width, eps)
        self.mlp = nn.ModuleDict(
            {"c_fc": nn.Linear(width, 4 * width), "c_proj": nn.Linear(4 * width, width)}
        )

    def forward(self, x: Tensor, visible: Tensor | None) -> Tensor:
        x = x + self.attn(self.ln_1(x), visible)
        hidden = self.mlp["c_fc"](self.ln_2(x))
        out: Tensor = x + self.mlp["c_proj"](hidden * torch.sigmoid(1.702 * hidden))
        return out


class Transformer(nn.Module):
    """A stack of pre-norm attention blocks over tokens of width `width`."""

    def __init__(self, width: int, layers: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.resblocks = nn.ModuleList(_Block(width, eps) for _ in range(layers))

    def forward(self, x: Tensor, visible: Tensor | None = None) -> Tensor:
        """Transform tokens ``[B,L,D]``; tokens where ``visible [B,L]`` is false are ignored."""
        mask = None if visible is None else visible[:, None, None, :]
        for block in self.resblocks:
            x = block(x, mask)
        return x


class VisionTransformer(nn.Module):
    """CLIP's vision tower, which turns images into a class token and one token per patch.

    Images have `size` x `size` pixels; `dim` is the width of the embedding.
    """

    def __init__(self, size: int, patch: int, width: int, layers: int, dim: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, patch, patch, bias=False)
        self.class_embedding = nn.Parameter(torch.empty(width))
        self.positional_embedding = nn.Parameter(torch.empty((size // patch) ** 2 + 1, width))
        self.ln_pre = nn.LayerNorm(width)
        self.transformer = Transformer(width, layers)
        self.ln_post = nn.LayerNorm(width)
        self.proj = nn.Parameter(torch.empty(width, dim))

    def forward(self, images: Tensor) -> Tensor:
        """Return all tokens of images ``[N,3,h,w]``, before `embed`."""
        patches = self.conv1(images).flatten(2).transpose(1, 2)
        first = self.class_embedding.to(patches.dtype).expand(len(patches), 1, -1)
        x = torch.cat([first, patches], 1) + self.positional_embedding
        tokens: Tensor = self.transformer(self.ln_pre(x))
        return tokens

    def embed(self, tokens: Tensor) -> Tensor:
        """Project tokens into the space of image and text embeddings."""
        embedded: Tensor = self.ln_post(tokens) @ self.proj
        return embedded
