"""Why a model says what it says: of one clip, of a concept, and of a class."""
