"""The paper's tables and figures, ours beside the published ones; one a file."""
