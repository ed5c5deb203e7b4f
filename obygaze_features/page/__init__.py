"""The parts that all pages share: escaped text, the style sheet and the document."""
