"""Click commands, which call the public functions. Large commands have their own modules."""
