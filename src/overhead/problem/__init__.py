"""What is trained and what it must cost."""
