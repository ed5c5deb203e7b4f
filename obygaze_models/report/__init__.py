"""Runs as pages for people to read."""
