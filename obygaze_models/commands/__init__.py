"""Click commands, which call the public functions."""
