"""The paper's tables and figures, with our numbers beside the published numbers."""
