"""Importers of timelines, one file each.

To add an importer, write a module with a click command `import_timelines` that hands rows to
`build_timelines` (see `mobygaze` for a short example), and add its line to `Timelines`: its method
and its command follow.
"""
