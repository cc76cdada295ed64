"""Chapter 10: what limits a reader's own loop."""
