"""What every page of ours is made of: escaped text, the style, film strips, one document."""
