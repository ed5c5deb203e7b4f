"""Helpers that both packages share: files, progress bars, tables and command-line options."""
