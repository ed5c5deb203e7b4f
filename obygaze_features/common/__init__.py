"""Small pieces that both components share: files, progress, tables, click helpers."""
