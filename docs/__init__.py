"""The documentation site: its pages, and the programs that build it."""
