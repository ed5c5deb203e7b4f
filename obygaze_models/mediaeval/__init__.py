"""MediaEval: run files of trec_eval, and scores by a benchmark's official measure."""
