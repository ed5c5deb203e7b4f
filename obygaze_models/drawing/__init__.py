"""What figures are drawn with: colours, words, marks and axes as SVG, and the file they end in."""
