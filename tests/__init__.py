"""The tests, by room. `make test` runs them, `make faults` the long ones."""

import os

# Nothing is fetched from a hub, and scikit-learn checks array inputs of every kind.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("SCIPY_ARRAY_API", "1")
