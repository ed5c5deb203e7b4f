"""The zoo: from feature stores to models, evaluations and reports, on a CPU."""
