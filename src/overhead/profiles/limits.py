"""What a profile may ask of this machine: time, memory, names. A file beyond a limit is refused in one line."""

from __future__ import annotations

import time

from overhead.profiles.summary import ProfileError

# Ten million rows (563 MB) take 20 s on two cores, so a machine a tenth as fast still reads a whole export; a small
# file that takes ten seconds is damaged or made to take for ever (pages of a table that share their children).
SHORTEST_S = 10.0
SLOWEST_BYTES_PER_S = 2_800_000
# Every name becomes a row of the summary and of its parts. CUDA has about 900 functions, the largest traces of compiled
# PyTorch some thousand kernels; a range may be named anew for each step.
MOST_NAMES = 20_000
MOST_RANGE_NAMES = 200_000
LONGEST_NAMES_BYTES = 1 << 28  # of all names together; StringIds without a key is read as a whole
MOST_THREADS = 20_000  # of all processes; Linux allows 32,768 processes and threads unless told otherwise
MOST_PROCESSES = 1_000  # each is a part of the summary, for which all events are gone through
MOST_DEVICES = 256  # likewise; a node has at most 16 GPUs, with seven instances each at most
# JAX writes a million events into a trace.json.gz; each is an object with an object of statistics, its names hold
# brackets as well. A Python object takes 30 to 200 bytes where the text takes 2, so what is parsed is counted first.
LARGEST_JSON_BYTES = 1 << 28  # unpacked
MOST_JSON_BRACKETS = 8_000_000
MOST_JSON_COMMAS = 32_000_000
# The parser makes about 50 bytes of a message that takes 2 in the file. Reading an event takes about 3 us.
LARGEST_XPLANE_BYTES = 1 << 30
SMALL_XPLANE_BYTES = 1 << 22  # cannot hold enough to matter, and is not counted first
MOST_XPLANE_MESSAGES = 4_000_000  # events and statistics of events
LARGEST_CSV_BYTES = 1 << 26  # a summary has a line a name


def check(what: str, limit: int, got: int) -> None:
    """Raise `ProfileError` where there is more of something than `limit`."""
    if got > limit:
        raise ProfileError(f"{what} must be at most {limit:,}, got {got:,}")


class Deadline:
    """The time that a file of `size` bytes may take, from now on."""

    def __init__(self, size: int) -> None:
        self.limit_s = SHORTEST_S + size / SLOWEST_BYTES_PER_S
        self.end = time.monotonic() + self.limit_s

    @property
    def passed(self) -> bool:
        return time.monotonic() > self.end

    def check(self) -> None:
        """Raise `ProfileError` once the time is over."""
        if self.passed:
            raise self.error()

    def error(self) -> ProfileError:
        """What a reader is told."""
        return ProfileError(
            f"reading must take at most {self.limit_s:.0f} s (by the file's size) and has not ended: "
            "the file is damaged, or this machine is very busy"
        )
