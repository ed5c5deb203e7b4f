"""Text models, which measure how likely a text is and how similar two texts are."""

from __future__ import annotations

from obygaze_features.language.models import load_language_model, load_sentence_encoder

__all__ = ["load_language_model", "load_sentence_encoder"]
