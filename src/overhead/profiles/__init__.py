"""Profiles of nsys and JAX, read into one summary. Importing this loads no framework."""

from overhead.profiles.difference import Difference, difference
from overhead.profiles.reading import example, read_events, read_profile
from overhead.profiles.summary import ProfileError, ProfileSummary

__all__ = [
    "Difference",
    "ProfileError",
    "ProfileSummary",
    "difference",
    "example",
    "read_events",
    "read_profile",
]
