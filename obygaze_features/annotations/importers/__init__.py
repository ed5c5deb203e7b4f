"""Importers of timelines, one file each.

To add an importer, write a module with a function `import_timelines` that passes rows to
`build_timelines` (see `mobygaze` for a short example), a method of the class `Timelines` that calls
it, and a command in `commands/annotations.py`.
"""
