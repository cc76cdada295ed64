"""Damage to files, as the tests of readers do it: `OVERHEAD_MUTATIONS=20000` tries as many of each kind."""

import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

EXAMPLES = int(os.environ.get("OVERHEAD_MUTATIONS", "120"))
many = settings(
    max_examples=EXAMPLES, deadline=None, database=None, derandomize=EXAMPLES < 1_000,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip

edit = st.tuples(
    st.sampled_from(["set", "cut", "put", "swap"]),
    st.floats(0, 1, exclude_max=True),
    st.binary(min_size=1, max_size=12),
)
edits = st.lists(edit, min_size=1, max_size=6)


def mutate(raw: bytes, edits) -> bytes:
    """`raw` with bytes set, cut out, put in or turned round."""
    found = bytearray(raw)
    for kind, where, data in edits:
        at = int(where * len(found))
        if kind == "set":
            found[at : at + len(data)] = data
        elif kind == "put":
            found[at:at] = data
        elif kind == "cut":
            del found[at : at + data[0]]
        else:
            found[at : at + 8] = found[at : at + 8][::-1]
    return bytes(found)
