"""The harness, itself measured."""
