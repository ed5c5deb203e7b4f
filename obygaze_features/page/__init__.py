"""The parts that all pages share: escaped text, the style sheet, film strips, the document."""
