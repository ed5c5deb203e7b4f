"""Reports: pages that show runs and annotations to readers."""
