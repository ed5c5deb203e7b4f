"""Click commands, a module per group. Each is a thin call of a public function."""
