"""From a film clip to frames: which ones, and their pixels."""
