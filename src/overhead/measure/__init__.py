"""How seconds are taken: one process a contestant, turns in shuffled rounds."""
