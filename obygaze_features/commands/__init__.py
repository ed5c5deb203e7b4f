"""Click commands: one module per group, and one per large command. Each calls a public function."""
