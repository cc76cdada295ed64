"""Chapter 11: exercises on a GPU that is simulated."""
