"""Importers of manifests, one file each.

To add an importer, write a module with a click command `import_manifest` that returns a `Manifest`
(see `folder` for a short example), and add a line for it to the class `Manifest`. This creates
both its method and its command.
"""
