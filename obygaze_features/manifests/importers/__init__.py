"""Importers of manifests, one file each.

To add an importer, write a module with a function `import_manifest` that returns a `Manifest` (see
`folder` for a short example), a method of the class `Manifest` that calls it, and a command in
`commands/manifests.py`.
"""
