"""Importers of timelines, one file each.

To add one, write a module with a function `import_timelines` that hands rows to `build_timelines`
(see `mobygaze` for a short one), add a method to `Timelines`, and write its command
in `commands/annotations.py`.
"""
