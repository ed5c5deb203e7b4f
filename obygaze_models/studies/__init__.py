"""Published studies, each reproduced or applied by a command of its own."""
