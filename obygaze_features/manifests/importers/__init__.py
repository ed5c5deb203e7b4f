"""Importers of manifests, one file each.

To add one, write a module with a click command `import_manifest` that returns a `Manifest` (see
`folder` for a short one), and add its line to `Manifest`: its method and its command follow.
"""
