"""Where stores may lie, and how their bytes are had from there."""
