"""Importers of manifests, a file each.

To add one, write a module with a function `import_manifest` (see `folder` for a short one), a
`Manifest.from_...` that calls it, and its command in `commands/manifests_import.py`.
"""
