"""Images and labels: MNIST from the package, a user's own files, or synthetic data for other shapes."""

from __future__ import annotations

import hashlib
import zlib
from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from overhead.problem import idx
from overhead.problem.files import check_regular
from overhead.problem.idx import IMAGES_MAGIC, LABELS_MAGIC, DataError
from overhead.problem.workload import MNIST_CLASSES, Workload

Images = NDArray[np.float32]
Labels = NDArray[np.int32]

SPLIT_SEED = 20260101  # which images validate; one split for every loop, seed and host
VALIDATION_IMAGES = 12_000

# SHA-256 of the unpacked IDX files of MNIST (LeCun, Cortes and Burges; CC BY-SA 3.0).
MNIST_SHA256 = {
    "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
    "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
    "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
    "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
}
# SHA-256 of the same bytes without the header, as they stand in a `.npz`: what they are, whatever their name says.
CONTENTS = {
    "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757": ("train", "training images"),
    "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161": ("t10k", "test images"),
    "1feba77c54802fa5339a11837ea4b2866434b83314ec45192930f1df69120c13": ("train", "training labels"),
    "ddeff807876a9661a1110d45c266c86239a3a1b7d37da0c3716a7a683c852ff5": ("t10k", "test labels"),
}
MAX_BLANK_SHARE = 0.01  # MNIST has none; a file whose tail was zeroed still parses


class Dataset(NamedTuple):
    """`images`: (n, pixels) float32 in [0, 1], or uint8 as stored; `labels`: (n,) int32; `name`: name and checksum."""

    images: NDArray[Any]
    labels: Labels
    name: str


class Split(NamedTuple):
    """Training and validation parts: (n, pixels) float32 and (n,) int32 each. They share no image."""

    x: Images  # bytes until `in_floats` in what `compact` gives
    y: Labels
    x_val: Images
    y_val: Labels
    name: str


@lru_cache(maxsize=1)
def load_mnist(part: str = "train") -> Dataset:
    """MNIST as the package ships it: 60,000 `train` or 10,000 `t10k` images.

    Returns images (n, 784) float32 in [0, 1] and labels (n,) int32. Raises `DataError` when a file's
    SHA-256 is not the published one. The arrays are shared and read-only.
    """
    stored = _mnist(part)
    dataset = stored._replace(images=scaled(stored.images))
    dataset.images.flags.writeable = False  # every caller gets the same arrays
    return dataset


@lru_cache(maxsize=2)
def _mnist(part: str) -> Dataset:
    """MNIST with its images as stored, (n, 784) uint8: a quarter of the memory, and quicker to split."""
    if part not in ("train", "t10k"):
        raise DataError(f"part of MNIST must be train or t10k, got {part!r}")
    folder = resources.files("overhead.problem") / "mnist"
    raw = {}
    for stem in (f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte"):
        raw[stem] = idx.unzip(f"{stem}.gz", (folder / f"{stem}.gz").read_bytes(), gzipped=True)
        found = hashlib.sha256(raw[stem]).hexdigest()
        if found != MNIST_SHA256[stem]:
            raise DataError(
                f"{stem}.gz: SHA-256 must be {MNIST_SHA256[stem][:12]}… (MNIST), got {found[:12]}…; "
                "reinstall the package"
            )
    images, labels = raw.values()
    dataset = _dataset(
        f"mnist@{MNIST_SHA256[f'{part}-images-idx3-ubyte'][:6]}",
        idx.parse(f"{part}-images", images, IMAGES_MAGIC),
        idx.parse(f"{part}-labels", labels, LABELS_MAGIC),
    )
    for array in (dataset.images, dataset.labels):
        array.flags.writeable = False
    return dataset


def load_idx(
    images: str | Path,
    labels: str | Path,
    *,
    name: str | None = None,
    sha256: tuple[str | None, str | None] = (None, None),
) -> Dataset:
    """A user's own IDX files, gzipped (`.gz`) or not, 28x28 or any other size of image.

    `sha256`: what the unpacked image file and the unpacked label file must have, where known.
    Fashion-MNIST's files have the names of MNIST's, so the name that travels is `name@` and the start of
    the images' checksum, and MNIST's own checksums are known: it is called so, under another name it is refused, and
    so is another set under its name. Raises `DataError` for anything that is not a whole IDX file of labels 0 to 9.
    """
    raw_images, raw_labels = idx.read(Path(images)), idx.read(Path(labels))
    found = hashlib.sha256(raw_images).hexdigest()
    for path, raw, wanted in ((images, raw_images, sha256[0]), (labels, raw_labels, sha256[1])):
        got = found if raw is raw_images else hashlib.sha256(raw).hexdigest()
        if wanted is not None and got != wanted.lower():
            raise DataError(f"{Path(path).name}: SHA-256 must be {wanted[:12]}…, got {got[:12]}…")
    stored = _dataset(
        f"{name or 'idx'}@{found[:6]}",
        idx.parse(Path(images).name, raw_images, IMAGES_MAGIC),
        idx.parse(Path(labels).name, raw_labels, LABELS_MAGIC),
    )
    return _known(stored, name)


def load_npz(path: str | Path, *, name: str | None = None) -> Dataset:
    """A user's own `.npz` with `x_train` and `y_train` (the names of Keras's mnist.npz).

    Images may be uint8 0-255 (scaled here) or floats in [0, 1]. Raises `DataError` otherwise.
    """
    path = Path(path)
    try:
        check_regular(path)
        # Opened here, since np.load leaves a damaged archive's file open.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            missing = {"x_train", "y_train"} - set(archive.files)
            if missing:
                raise DataError(f"{path.name}: must hold x_train and y_train, lacks {', '.join(sorted(missing))}")
            size = sum(member.file_size for member in archive.zip.infolist())
            if size > idx.LARGEST_BYTES:
                raise DataError(f"{path.name}: must be at most {idx.LARGEST_BYTES} bytes unpacked, got {size}")
            images, labels = archive["x_train"], archive["y_train"]
    except OSError as error:
        raise DataError(f"{path.name}: cannot be read: {error.strerror or error}") from None
    except DataError:
        raise
    except (ValueError, zlib.error, KeyError, EOFError) as error:
        raise DataError(f"{path.name}: must be a NumPy .npz archive without pickles, got {_said(error)}") from None
    except Exception as error:  # zipfile.BadZipFile has no better common base
        raise DataError(f"{path.name}: must be a whole .npz archive, got {_said(error)}") from None
    checksum = hashlib.sha256(images.tobytes()).hexdigest()[:6]
    return _known(_dataset(f"{name or path.stem}@{checksum}", images, labels), name)


def _said(error: Exception) -> str:
    """What NumPy says of a damaged archive, on one line: it repeats the file's own bytes."""
    return "".join(c if c.isprintable() else "·" for c in str(error)[:200]) or type(error).__name__


def _known(stored: Dataset, name: str | None) -> Dataset:
    """`stored` in floats, under MNIST's name if it is that by its checksums.

    Raises `DataError` where that is not the name that was given, where only its images or only its labels are
    MNIST's, and where another set is called MNIST.
    """
    images, labels = (
        CONTENTS.get(hashlib.sha256(array.astype(np.uint8).tobytes()).hexdigest()) if whole else None
        for array, whole in ((stored.images, stored.images.dtype == np.uint8), (stored.labels, True))
    )
    called = (name or "").lower()
    if images and labels and images[0] == labels[0]:
        if called not in ("", "mnist"):
            raise DataError(f"{stored.name}: by their checksums these are MNIST's {images[1]}, got the name {name!r}")
        part = MNIST_SHA256[f"{images[0]}-images-idx3-ubyte"]
        stored = stored._replace(name=f"mnist@{part[:6]}")
    elif images or labels:
        of, other = ("images", "labels") if images else ("labels", "images")
        what = (images or labels or ("", ""))[1]
        raise DataError(f"{stored.name}: by their checksum the {of} are MNIST's {what}, the {other} are not")
    elif called == "mnist":
        raise DataError(f"{stored.name}: MNIST's checksums are known, and these images and labels have others")
    return stored._replace(images=scaled(stored.images))


def split(dataset: Dataset, workload: Workload, validation: int = VALIDATION_IMAGES) -> Split:
    """The written-down split: one seeded permutation of all images; its last `validation` validate.

    Which images validate depends on `SPLIT_SEED` alone, so it is the same for every loop and seed; the
    order of the training images depends on `workload.seed`. Raises `DataError` when there are too few
    images or when they do not fit the first layer.
    """
    return in_floats(_parts(dataset, workload, validation))


def _parts(dataset: Dataset, workload: Workload, validation: int = VALIDATION_IMAGES) -> Split:
    """The split with its images as `dataset` has them."""
    if dataset.images.shape[1] != workload.layers[0]:
        raise DataError(
            f"{dataset.name}: images must have {workload.layers[0]} pixels (the first layer), "
            f"got {dataset.images.shape[1]}"
        )
    available = len(dataset.labels) - validation
    if workload.images > available:
        raise DataError(
            f"images must be at most {available} ({len(dataset.labels)} less {validation} for validation), "
            f"got {workload.images}"
        )
    rows = np.random.default_rng(SPLIT_SEED).permutation(len(dataset.labels))
    train, held = rows[:available], rows[available:]
    order = train[np.random.default_rng([workload.seed, 2]).permutation(available)][: workload.images]
    return Split(dataset.images[order], dataset.labels[order], dataset.images[held], dataset.labels[held], dataset.name)


def in_floats(parts: Split) -> Split:
    """The split with float32 images in [0, 1]."""
    return parts._replace(x=scaled(parts.x), x_val=scaled(parts.x_val))


def scaled(images: NDArray[Any]) -> Images:
    """Float32 in [0, 1] from bytes 0 to 255; floats as they are. Any shape."""
    return np.divide(images, np.float32(255), dtype=np.float32) if images.dtype == np.uint8 else images


def synthetic(workload: Workload) -> Split:
    """Stand-in data for layers that do not fit MNIST: uniform inputs, labels from a seeded random teacher.

    Marked `synthetic`; it has no validation part and so no accuracy, and never enters a table of MNIST.
    """
    rng = np.random.default_rng([workload.seed, 3])
    inputs, classes = workload.layers[0], workload.layers[-1]
    x = rng.random((workload.images, inputs), dtype=np.float32)
    teacher = rng.standard_normal((inputs, classes), dtype=np.float32)
    y = ((x - np.float32(0.5)) @ teacher).argmax(axis=1).astype(np.int32)
    return Split(x, y, x[:0], y[:0], "synthetic")


def for_workload(workload: Workload) -> Split:
    """MNIST where the layers fit it, else synthetic data."""
    return in_floats(compact(workload))


def compact(workload: Workload) -> Split:
    """`for_workload` with MNIST's images as bytes, a quarter of the size: `in_floats` makes them what is trained on."""
    return _parts(_mnist("train"), workload) if workload.is_mnist else synthetic(workload)


def stored_bytes(workload: Workload, itemsize: int = 4) -> int:
    """What the images of `for_workload` take on disk, those that validate included; `itemsize` 1: of `compact`."""
    held = VALIDATION_IMAGES if workload.is_mnist else 0
    return (workload.images + held) * workload.layers[0] * (itemsize if workload.is_mnist else 4)


def _dataset(name: str, images: NDArray, labels: NDArray) -> Dataset:
    """Check: images as bytes or float32 in [0, 1], labels int32 in 0-9, as many labels as images."""
    if images.ndim < 2 or labels.ndim != 1:
        raise DataError(f"{name}: must be images (n, …) and labels (n,), got {images.shape} and {labels.shape}")
    if len(images) != len(labels):
        raise DataError(f"{name}: images and labels must be as many, got {len(images)} and {len(labels)}")
    if images.size == 0:
        raise DataError(f"{name}: must hold at least one pixel, got images of shape {images.shape}")
    if not np.issubdtype(labels.dtype, np.integer):
        raise DataError(f"{name}: labels must be whole numbers, got {labels.dtype}")
    if labels.min() < 0 or labels.max() >= MNIST_CLASSES:
        bad = labels[(labels < 0) | (labels >= MNIST_CLASSES)][0]
        raise DataError(f"{name}: labels must be between 0 and {MNIST_CLASSES - 1}, got {bad}")
    missing = sorted(set(range(MNIST_CLASSES)) - set(np.unique(labels).tolist()))
    if missing:
        raise DataError(
            f"{name}: labels must hold every class from 0 to {MNIST_CLASSES - 1}, got none of "
            + ", ".join(map(str, missing))
        )
    pixels = images.reshape(len(images), -1)
    if np.issubdtype(pixels.dtype, np.floating):
        with np.errstate(over="ignore"):  # beyond float32 is beyond 1, which is refused below
            pixels = pixels.astype(np.float32)
    elif pixels.dtype != np.uint8:
        raise DataError(f"{name}: pixels must be uint8 or floats in [0, 1], got {pixels.dtype}")
    low, high = (float(scaled(end)) for end in (pixels.min(), pixels.max()))
    if not (low >= 0 and high <= 1):
        raise DataError(f"{name}: float pixels must be in [0, 1], got {low:g} to {high:g} (divide by 255?)")
    if high <= 1.001 / 255:
        raise DataError(f"{name}: pixels must reach 1, got at most {high:g} (divided by 255 twice?)")
    blank = int((pixels.max(axis=1) == 0).sum())
    if blank > MAX_BLANK_SHARE * len(pixels):
        raise DataError(
            f"{name}: at most {MAX_BLANK_SHARE:.0%} of the images may be blank, got {blank} of {len(pixels)}"
        )
    return Dataset(pixels, labels.astype(np.int32), name)
