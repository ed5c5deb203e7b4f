"""What is in the stores that the tests of HTTP have served."""

from __future__ import annotations

import numpy as np

N, T, D = 300, 32, 512
ROWS = np.random.default_rng(0).standard_normal((N, T, D), np.float32).astype(np.float16)
VALUES = {"native": ROWS[:, 0].astype(np.float32), "frames": ROWS}
CHUNK = T * D * 2 + 4
