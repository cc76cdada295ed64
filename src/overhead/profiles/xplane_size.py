"""How many messages an `xplane.pb` holds, found by walking its bytes, before a parser makes objects of them."""

from __future__ import annotations

NESTED = {0: 1, 1: 3, 2: 4, 3: 4}  # level → field of the next: XSpace.planes, XPlane.lines, XLine.events, XEvent.stats


def messages(raw: bytes, most: int) -> int:
    """Events and statistics of events; counting ends soon after `most`. What is no protocol buffer counts as it may.

    Fields as in tsl/profiler/protobuf/xplane.proto; the encoding is that of protocol buffers.
    """
    found, stack = 0, [(0, len(raw), 0)]
    while stack and found <= most:
        at, end, level = stack.pop()
        nested = NESTED.get(level)
        while at < end and found <= most:
            tag, at = _varint(raw, at)
            kind = tag & 7
            if kind == 2:  # bytes with their length before them
                length, at = _varint(raw, at)
                if tag >> 3 == nested:
                    found += level > 1
                    if level < 3:
                        stack.append((at, min(at + length, end), level + 1))
                at += length
            elif kind == 0:
                _, at = _varint(raw, at)
            elif kind in (1, 5):
                at += 8 if kind == 1 else 4
            else:
                break  # damaged: the parser says so
    return found


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    for byte in raw[at : at + 10]:
        value |= (byte & 127) << shift
        at += 1
        if byte < 128:
            return value, at
        shift += 7
    return value, max(at, len(raw))
