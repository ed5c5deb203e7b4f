"""Mel spectrograms like those of transformers, with the same bits, many frames at a time.

Transformers makes one frame at a time in Python, which holds the interpreter's lock. Here most of
the work is done in NumPy without that lock, so several threads help.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

FRAMES_PER_STEP = 64
"""The frames transformed together, which fit the processor's cache."""
SINGLE_THREADED = 1 << 18
"""The multiplications that OpenBLAS does in the calling thread. For more it starts threads, which
compete with those of other windows and whose number would change bits.
"""


def spectrogram(
    waveform: NDArray[np.float32], window: NDArray[Any], *, frame_length: int, hop_length: int,
    mel_filters: NDArray[np.float64], fft_length: int | None = None, power: float | None = 1.0,
    center: bool = True, preemphasis: float | None = None, mel_floor: float = 1e-10,
    log_mel: str | None = None, remove_dc_offset: bool = False, **options: Any,
) -> NDArray[np.float32]:  # fmt: skip
    """Return a mel spectrogram ``[mels, frames]``; see ``transformers.audio_utils.spectrogram``.

    Only options of transformers' extractors are handled here, and the rest there.
    """
    from transformers import audio_utils

    if options or power != 2.0 or log_mel not in ("dB", "log"):
        result: NDArray[np.float32] = audio_utils.spectrogram(
            waveform, window, frame_length=frame_length, hop_length=hop_length,
            mel_filters=mel_filters, fft_length=fft_length, power=power, center=center,
            preemphasis=preemphasis, mel_floor=mel_floor, log_mel=log_mel,
            remove_dc_offset=remove_dc_offset, **options,
        )  # fmt: skip
        return result
    if center:
        waveform = np.pad(waveform, frame_length // 2, mode="reflect")
    frames = np.lib.stride_tricks.sliding_window_view(waveform, frame_length)[::hop_length]
    mel = np.empty((mel_filters.shape[1], len(frames)))
    frames_per_product = max(1, SINGLE_THREADED // mel_filters.size)
    for begin in range(0, len(frames), FRAMES_PER_STEP):
        step = frames[begin : begin + FRAMES_PER_STEP].astype(np.float64)
        if remove_dc_offset:
            step -= step.mean(1, keepdims=True)
        if preemphasis is not None:
            step[:, 1:] -= preemphasis * step[:, :-1]
            step[:, 0] *= 1 - preemphasis
        step *= window
        spectrum = np.fft.rfft(step, fft_length).astype(np.complex64)
        powers = np.abs(spectrum, dtype=np.float64) ** 2.0
        for first in range(0, len(powers), frames_per_product):
            part = powers[first : first + frames_per_product]
            mel[:, begin + first :][:, : len(part)] = mel_filters.T @ part.T
    mel = np.maximum(mel_floor, mel)
    mel = audio_utils.power_to_db(mel) if log_mel == "dB" else np.log(mel)
    return mel.astype(np.float32)
