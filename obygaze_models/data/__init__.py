"""Which clips, which class, which rows: from a manifest and its stores to arrays."""
