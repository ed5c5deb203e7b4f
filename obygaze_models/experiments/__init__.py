"""Experiments: a task, a protocol, features and estimators in; scores and predictions out."""
