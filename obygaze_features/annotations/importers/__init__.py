"""Importers of timelines, a file each.

To add one, write a module with a function `import_timelines` that hands rows to `build_timelines`
(see `mobygaze` for a short one), a `Timelines.from_...` that calls it, and its command in
`commands/annotations.py`.
"""
