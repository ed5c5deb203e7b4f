"""Importers of manifests, one file each.

To add an importer, write a module with a click command `import_manifest` that returns a `Manifest`
(see `folder` for a short example), and add its line to `Manifest`: its method and its command
follow.
"""
