"""Importers of timelines, one file each.

To add an importer, write a module with a click command `import_timelines` that passes rows to
`build_timelines` (see `mobygaze` for a short example), and add a line for it to the class
`Timelines`. This creates both its method and its command.
"""
