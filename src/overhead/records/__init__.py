"""What a measurement is, without knowing how it was taken."""
