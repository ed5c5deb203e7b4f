"""Importers of manifests, one file each.

To add one, write a module with a function `import_manifest` (see `folder` for a short one), name it
in `manifests/__init__.py` and `Manifest`, and write its command in `commands/manifests_import.py`.
"""
