"""Models of texts: how likely a caption is, and how similar two texts are."""

from __future__ import annotations

from obygaze_features.language.models import (
    LANGUAGE_MODELS,
    SENTENCE_ENCODERS,
    LanguageModel,
    SentenceEncoder,
    load_language_model,
    load_sentence_encoder,
)

__all__ = [
    "LANGUAGE_MODELS",
    "SENTENCE_ENCODERS",
    "LanguageModel",
    "SentenceEncoder",
    "load_language_model",
    "load_sentence_encoder",
]
