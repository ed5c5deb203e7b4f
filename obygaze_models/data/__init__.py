"""Load the clips of manifests and stores as arrays, and divide them into folds."""
