"""Search stores by content: the nearest clips of a text or a clip, and a map of all clips."""
