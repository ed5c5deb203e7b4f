"""Click commands, one module per group. Each command is a thin wrapper of a public function."""
