"""Models that read texts: how likely a caption is, and how near two texts are."""

from __future__ import annotations

from obygaze_features.language.finding import ENCODERS, LANGUAGE_MODELS
from obygaze_features.language.language_model import LanguageModel, load_language_model
from obygaze_features.language.sentence_encoder import SentenceEncoder, load_sentence_encoder

__all__ = [
    "ENCODERS",
    "LANGUAGE_MODELS",
    "LanguageModel",
    "SentenceEncoder",
    "load_language_model",
    "load_sentence_encoder",
]
