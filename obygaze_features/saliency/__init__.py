"""Saliency maps: which parts of an image a network uses to compare it with a text."""
