"""Saliency: the parts of an image that a network uses to compare the image with a text."""
