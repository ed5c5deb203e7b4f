"""The feature store: lists of clips, stores of features, and the way from films to them."""
