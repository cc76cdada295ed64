"""Chapter 0."""
