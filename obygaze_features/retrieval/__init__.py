"""Search stores by content."""
