"""Search stores by content, and map clips in two dimensions."""
