"""MediaEval: run files for trec_eval, and scores by a benchmark's official measure."""
