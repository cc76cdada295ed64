"""Chapter 5."""
