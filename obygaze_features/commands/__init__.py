"""Click commands, one module a group; each a thin call of a public function."""
