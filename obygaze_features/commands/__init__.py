"""Click commands, which call the public functions; large commands have their own modules."""
