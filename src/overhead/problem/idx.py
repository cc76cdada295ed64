"""IDX, the format of MNIST's files: read, unpacked and checked before anything is made of it."""

from __future__ import annotations

import gzip
import io
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from overhead.problem.files import check_regular

IMAGES_MAGIC, LABELS_MAGIC = 2051, 2049  # unsigned bytes in three and in one dimension
GZIP_MAGIC = b"\x1f\x8b"
# Unpacked. Half a million images of MNIST's size take 376 MB, and four times that in float32; a gzip of half a megabyte
# unpacks to as much.
LARGEST_BYTES = 1 << 29
CHUNK = 1 << 20


class DataError(ValueError):
    """A data file that is not what it should be; names the file, what was expected and what was found."""


def read(path: Path) -> bytes:
    """The unpacked bytes of an IDX file, gzipped (`.gz`) or not. Raises `DataError`."""
    try:
        check_regular(path)
        size = path.stat().st_size
        if size > LARGEST_BYTES:
            raise DataError(f"{path.name}: must be at most {LARGEST_BYTES} bytes, got {size}")
        raw = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path.name}: cannot be read: {error.strerror}") from None
    return unzip(path.name, raw, gzipped=path.suffix == ".gz")


def unzip(name: str, raw: bytes, *, gzipped: bool) -> bytes:
    """`raw` without its gzip, and no more of it than its IDX header promises. Raises `DataError`."""
    if not gzipped:
        return raw
    if raw[:4] in (struct.pack(">I", IMAGES_MAGIC), struct.pack(">I", LABELS_MAGIC)):
        raise DataError(
            f"{name}: must be gzip (starts with 1f 8b), got magic number {_int(raw)}: the file is already "
            "unpacked; take .gz off its name"
        )
    if raw[:2] != GZIP_MAGIC:
        found = "HTML (a proxy's or a dead link's page?)" if _is_html(raw) else raw[:4].hex(" ") or "no bytes"
        raise DataError(
            f"{name}: must be gzip (starts with 1f 8b), got {found} in {len(raw)} bytes; fetch the file again"
        )
    try:
        return _unzipped(name, raw)
    except (EOFError, OSError, zlib.error) as error:
        raise DataError(
            f"{name}: must be a whole gzip file, got {len(raw)} bytes that end early or are damaged "
            f"({error}); fetch the file again"
        ) from None


def _unzipped(name: str, raw: bytes) -> bytes:
    with gzip.GzipFile(fileobj=io.BytesIO(raw)) as file:
        head = file.read(CHUNK)
        expected = _expected(head)
        if expected is not None and expected > LARGEST_BYTES:
            raise DataError(f"{name}: must be at most {LARGEST_BYTES} bytes unpacked, its header says {expected}")
        parts, found = [head], len(head)
        # One chunk more than is expected, so that the end and its checksum are reached.
        while parts[-1] and (expected is None or found <= expected) and found <= LARGEST_BYTES:
            parts.append(file.read(CHUNK))
            found += len(parts[-1])
    if found > LARGEST_BYTES:
        raise DataError(f"{name}: must be at most {LARGEST_BYTES} bytes unpacked, got more")
    return b"".join(parts)


def _is_html(raw: bytes) -> bool:
    return raw[:64].lstrip(b"\xef\xbb\xbf \t\r\n")[:1] == b"<"  # after a byte order mark or blanks


def _expected(raw: bytes) -> int | None:
    """The bytes of the whole file by its header; None where it has none."""
    dimensions = {IMAGES_MAGIC: 3, LABELS_MAGIC: 1}.get(_int(raw) if len(raw) >= 4 else 0)
    if dimensions is None or len(raw) < 4 + 4 * dimensions:
        return None
    shape = struct.unpack(f">{dimensions}I", raw[4 : 4 + 4 * dimensions])
    return 4 + 4 * dimensions + int(np.prod(shape, dtype=object))


def parse(name: str, raw: bytes, magic: int) -> NDArray[np.uint8]:
    """Parse IDX: magic, one 32-bit big-endian size a dimension, then unsigned bytes. Raises `DataError`."""
    if raw[:2] == GZIP_MAGIC:
        number = f", got {_int(raw)}" if len(raw) >= 4 else ""
        raise DataError(f"{name}: magic number must be {magic}{number}: the file is still gzipped; name it .gz")
    if _is_html(raw):
        raise DataError(f"{name}: magic number must be {magic}, got HTML; fetch the file again")
    dimensions = magic & 0xFF
    head = 4 + 4 * dimensions
    if len(raw) < head:
        raise DataError(
            f"{name}: must be at least {head} bytes (IDX header, magic number {magic}), got {len(raw)}; "
            "fetch the file again"
        )
    if _int(raw) != magic:
        swapped = struct.unpack("<I", raw[:4])[0] == magic
        hint = " (the byte order is reversed)" if swapped else ""
        raise DataError(f"{name}: magic number must be {magic}, got {_int(raw)}{hint}")
    shape = struct.unpack(f">{dimensions}I", raw[4:head])
    expected = head + int(np.prod(shape, dtype=object))
    if len(raw) != expected:
        raise DataError(f"{name}: must be {expected} bytes for shape {shape}, got {len(raw)}; fetch the file again")
    return np.frombuffer(raw, np.uint8, offset=head).reshape(shape)


def _int(raw: bytes) -> int:
    return struct.unpack(">I", raw[:4])[0]
