"""Importers of manifests, one file each.

To add one, write a module with a function `import_manifest` (see `folder` for a short one), add
a method to `Manifest`, and write its command in `commands/manifests_import.py`.
"""
