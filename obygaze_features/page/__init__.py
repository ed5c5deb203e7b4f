"""The parts of every page: escaped text, the style, film strips, one document."""
