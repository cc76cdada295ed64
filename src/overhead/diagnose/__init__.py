"""What limits a reader's own training step, shown by changing one thing at a time."""
