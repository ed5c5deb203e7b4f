"""MediaEval: run files of trec_eval, and scores by the official measure of a benchmark's labels."""
