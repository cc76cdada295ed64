"""MNIST comes out as published, the split keeps its word, and a bad file never trains."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import struct
import sys
from importlib import resources
from pathlib import Path

import numpy as np
import pytest

from overhead.problem import data
from overhead.problem import idx as idx_files
from overhead.problem.data import DataError, Dataset, load_idx, load_mnist, load_npz, split
from overhead.problem.workload import Workload

CLASS_COUNTS = [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949]
# What `split` gave when it was written down.
VALIDATION_COUNTS = [1204, 1318, 1197, 1238, 1136, 1117, 1204, 1221, 1174, 1191]
VALIDATION_SHA256 = "796405fab866"  # of the pixels, float32


def idx(array: np.ndarray) -> bytes:
    """An IDX file of unsigned bytes."""
    array = array.astype(np.uint8)
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


IMAGES = np.random.default_rng(0).integers(1, 256, (40, 4, 4)).astype(np.uint8)  # none is blank
LABELS = np.arange(40, dtype=np.uint8) % 10


class Files:
    """A good pair of files in a folder, to be damaged one at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.images = self.write("images.gz", gzip.compress(idx(IMAGES)))
        self.labels = self.write("labels.gz", gzip.compress(idx(LABELS)))

    def write(self, name: str, content: bytes) -> Path:
        path = self.folder / name
        path.write_bytes(content)
        return path


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def problem(call, *args, **options) -> str:
    """The error of a call: one line that names no folder."""
    with pytest.raises(DataError) as caught:
        call(*args, **options)
    text = str(caught.value)
    assert "\n" not in text
    assert "/" not in text.replace("train or t10k", "")
    return text


# MNIST


def test_mnist_is_the_published_one():
    train, test = load_mnist(), load_mnist("t10k")

    assert train.images.shape == (60_000, 784)
    assert test.images.shape == (10_000, 784)
    assert train.images.dtype == np.float32
    assert train.labels.dtype == np.int32
    assert train.labels[:10].tolist() == [5, 0, 4, 1, 9, 2, 1, 3, 1, 4]
    assert test.labels[:10].tolist() == [7, 2, 1, 0, 4, 1, 4, 9, 5, 9]
    assert np.bincount(train.labels).tolist() == CLASS_COUNTS
    assert train.images.min() == 0
    assert train.images.max() == 1
    assert train.images.mean(dtype=np.float64) == pytest.approx(0.13066, abs=5e-6)
    assert train.images.std(dtype=np.float64) == pytest.approx(0.30811, abs=5e-6)
    assert np.count_nonzero(train.images) / train.images.size == pytest.approx(0.1912, abs=5e-5)
    assert train.name == "mnist@ba8910"


def test_mnist_is_shared_and_cannot_be_changed_by_a_loop():
    with pytest.raises(ValueError, match="read-only"):
        load_mnist().images[0, 0] = 1


def test_a_flipped_byte_of_the_package_s_files_is_noticed(monkeypatch):
    unzip = idx_files.unzip

    def flipped(name: str, raw: bytes, *, gzipped: bool) -> bytes:
        content = bytearray(unzip(name, raw, gzipped=gzipped))
        content[1000] ^= 1
        return bytes(content)

    monkeypatch.setattr(idx_files, "unzip", flipped)

    text = problem(data._mnist.__wrapped__, "train")
    assert re.fullmatch(
        r"train-images-idx3-ubyte\.gz: SHA-256 must be ba891046e650… \(MNIST\), got \w{12}…; reinstall .*",
        text,
    )


def test_mnist_has_two_parts():
    assert problem(load_mnist, "test") == "part of MNIST must be train or t10k, got 'test'"


# The split


def test_the_split_is_disjoint_and_whole():
    dataset = Dataset(np.arange(60_000, dtype=np.float32)[:, None], load_mnist().labels, "rows")
    parts = split(dataset, Workload(layers=(1, 10)))

    train, held = parts.x[:, 0], parts.x_val[:, 0]
    assert (len(train), len(held)) == (48_000, 12_000)
    assert np.array_equal(np.sort(np.concatenate([train, held])), np.arange(60_000))
    # every class is in both parts in the share it has in all
    for labels, rows in ((parts.y, train), (parts.y_val, held)):
        assert np.array_equal(labels, dataset.labels[rows.astype(int)])
        np.testing.assert_allclose(np.bincount(labels) / len(labels), np.array(CLASS_COUNTS) / 60_000, atol=0.01)


def test_which_images_validate_is_written_down():
    # Frozen: another choice would change every accuracy in the book without a word.
    parts = split(load_mnist(), Workload())

    assert np.bincount(parts.y_val).tolist() == VALIDATION_COUNTS
    assert hashlib.sha256(parts.x_val.tobytes()).hexdigest()[:12] == VALIDATION_SHA256


def test_the_seed_orders_the_training_images_and_nothing_else():
    dataset = Dataset(np.arange(60_000, dtype=np.float32)[:, None], load_mnist().labels, "rows")
    first, again, other = (split(dataset, Workload(layers=(1, 10), seed=seed)) for seed in (0, 0, 1))

    assert np.array_equal(first.x, again.x)
    assert not np.array_equal(first.x, other.x)
    assert np.array_equal(np.sort(first.x, axis=0), np.sort(other.x, axis=0))
    assert np.array_equal(first.x_val, other.x_val)


def test_fewer_images_are_the_first_of_the_same_order():
    dataset = Dataset(np.arange(60_000, dtype=np.float32)[:, None], load_mnist().labels, "rows")
    all_, some = (split(dataset, Workload(layers=(1, 10), images=images)) for images in (48_000, 200))

    assert np.array_equal(some.x, all_.x[:200])
    assert np.array_equal(some.x_val, all_.x_val)


def test_data_sorted_by_label_leave_no_class_out():
    # field case E6: a share taken from the end of sorted data would hold two classes
    order = np.argsort(load_mnist().labels, kind="stable")
    dataset = Dataset(order[:, None].astype(np.float32), load_mnist().labels[order], "sorted")
    parts = split(dataset, Workload(layers=(1, 10)))

    assert np.bincount(parts.y_val).min() > 900
    assert np.bincount(parts.y).min() > 4000


def test_too_few_images_for_the_split():
    dataset = Dataset(np.ones((100, 784), np.float32), np.zeros(100, np.int32), "few")

    assert problem(split, dataset, Workload(images=90), validation=20) == (
        "images must be at most 80 (100 less 20 for validation), got 90"
    )


def test_images_that_do_not_fit_the_first_layer():
    dataset = Dataset(np.ones((100, 196), np.float32), np.zeros(100, np.int32), "small@123456")

    assert problem(split, dataset, Workload(images=50), validation=20) == (
        "small@123456: images must have 784 pixels (the first layer), got 196"
    )


def test_compact_images_are_the_same_in_floats():
    workload = Workload(images=200)
    bytes_, floats = data.compact(workload), data.for_workload(workload)

    assert (bytes_.x.dtype, bytes_.x_val.dtype) == (np.uint8, np.uint8)
    assert all(np.array_equal(a, b) for a, b in zip(data.in_floats(bytes_), floats, strict=True))
    assert np.array_equal(floats.x, split(load_mnist(), workload).x)


def test_other_layers_get_synthetic_data_that_say_so():
    workload = Workload(layers=(20, 8, 5), images=500)
    made, again = data.for_workload(workload), data.for_workload(workload)

    assert made.name == "synthetic"
    assert made.x.shape == (500, 20)
    assert (made.x.dtype, made.y.dtype) == (np.float32, np.int32)
    assert set(made.y) == set(range(5))
    assert len(made.y_val) == 0
    assert np.array_equal(made.x, again.x)
    assert data.for_workload(Workload(images=64)).name == "mnist@ba8910"


# A user's own IDX files


def test_idx_files_come_out_as_images_and_labels(files):
    for images, labels in (
        (files.images, files.labels),
        (files.write("images", idx(IMAGES)), files.write("labels", idx(LABELS))),
    ):
        dataset = load_idx(images, labels, name="mine")

        np.testing.assert_array_equal(dataset.images, IMAGES.reshape(40, 16) / np.float32(255))
        assert dataset.images.dtype == np.float32
        np.testing.assert_array_equal(dataset.labels, LABELS)
        assert dataset.labels.dtype == np.int32


def test_a_name_travels_with_its_checksum(files):
    # Fashion-MNIST's files have the names of MNIST's, so a name alone says nothing
    checksum = hashlib.sha256(idx(IMAGES)).hexdigest()
    other = files.write("images", idx(IMAGES[::-1]))

    assert load_idx(files.images, files.labels, name="fashion").name == f"fashion@{checksum[:6]}"
    assert load_idx(other, files.labels, name="fashion").name != f"fashion@{checksum[:6]}"


def test_a_flipped_byte_is_noticed_where_the_checksum_is_known(files):
    known = hashlib.sha256(idx(IMAGES)).hexdigest(), hashlib.sha256(idx(LABELS)).hexdigest().upper()
    assert load_idx(files.images, files.labels, sha256=known).labels.tolist() == LABELS.tolist()

    for name, array in (("images", IMAGES), ("labels", LABELS)):
        content = bytearray(idx(array))
        content[-1] ^= 1
        damaged = {"images": files.images, "labels": files.labels, name: files.write(name, bytes(content))}

        text = problem(load_idx, damaged["images"], damaged["labels"], sha256=known)
        assert re.fullmatch(rf"{name}: SHA-256 must be \w{{12}}…, got \w{{12}}…", text)


# Field case E: a checksum that is known says what it is


def packaged(part: str, what: str) -> Path:
    return Path(str(resources.files("overhead.problem"))) / "mnist" / f"{part}-{what}-ubyte.gz"


@pytest.mark.parametrize("part", ["train", "t10k"])
def test_mnist_is_called_so_and_refused_under_another_name(part):
    images, labels = packaged(part, "images-idx3"), packaged(part, "labels-idx1")

    assert load_idx(images, labels).name == data._mnist(part).name
    assert load_idx(images, labels, name="MNIST").name == data._mnist(part).name
    assert re.fullmatch(
        r"fashion@\w{6}: by their checksums these are MNIST's (training|test) images, got the name 'fashion'",
        problem(load_idx, images, labels, name="fashion"),
    )


def test_an_npz_of_mnist_is_called_so_and_refused_under_another_name(tmp_path):
    mnist = data._mnist("t10k")
    path = tmp_path / "fashion.npz"
    np.savez(path, x_train=mnist.images.reshape(-1, 28, 28), y_train=mnist.labels)

    assert load_npz(path).name == mnist.name
    assert "these are MNIST's test images" in problem(load_npz, path, name="fashion")


def test_another_set_under_the_name_of_mnist_is_refused(files):
    assert "MNIST's checksums are known, and these" in problem(load_idx, files.images, files.labels, name="mnist")
    assert "MNIST's checksums are known, and these" in problem(load_npz, npz(files), name="mnist")


def test_images_and_labels_of_two_sets_are_refused(files):
    images, labels = packaged("t10k", "images-idx3"), packaged("t10k", "labels-idx1")
    fashion = np.arange(10_000) % 10
    others = np.random.default_rng(1).integers(1, 256, (10_000, 2, 2))

    text = problem(load_idx, images, files.write("x", idx(fashion)))
    assert text.endswith("by their checksum the images are MNIST's test images, the labels are not")
    text = problem(load_idx, files.write("x", idx(others)), labels)
    assert text.endswith("by their checksum the labels are MNIST's test labels, the images are not")


def test_the_known_contents_are_those_of_the_package():
    for part in ("train", "t10k"):
        stored = data._mnist(part)
        for array in (stored.images, stored.labels.astype(np.uint8)):
            assert data.CONTENTS[hashlib.sha256(array.tobytes()).hexdigest()][0] == part


# What is no file, or would fill the memory


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such files")
@pytest.mark.parametrize("load", ["idx", "npz"])
@pytest.mark.parametrize(
    ("kind", "says"),
    [("pipe", "it must be a file, got a pipe"), ("device", "it must be a file, got a device"),
     ("loop", "Too many levels of symbolic links"), ("folder", "it must be a file, got a folder")],
)  # fmt: skip
def test_what_is_no_file_is_refused_at_once(files, load, kind, says):
    path = files.folder / "given"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to("/dev/zero" if kind == "device" else path)

    text = problem(load_npz, path) if load == "npz" else problem(load_idx, path, files.labels)
    assert text == f"given: cannot be read: {says}"


def test_a_gzip_is_unpacked_no_further_than_its_header_says(files, monkeypatch):
    monkeypatch.setattr(idx_files, "CHUNK", 64)
    head = struct.pack(">IIII", 2051, 40, 4, 4)
    bomb = files.write("bomb.gz", gzip.compress(head + bytes(10_000_000)))
    assert problem(load_idx, bomb, files.labels).startswith("bomb.gz: must be 656 bytes for shape (40, 4, 4), got 7")

    claims = files.write("claims.gz", gzip.compress(struct.pack(">IIII", 2051, 60_000, 2**31, 2**31)))
    assert re.fullmatch(
        r"claims\.gz: must be at most 536870912 bytes unpacked, its header says \d+",
        problem(load_idx, claims, files.labels),
    )


def test_what_unpacks_to_too_much_is_refused(files, monkeypatch):
    monkeypatch.setattr(idx_files, "LARGEST_BYTES", 5000)
    monkeypatch.setattr(idx_files, "CHUNK", 64)
    no_header = files.write("zeros.gz", gzip.compress(bytes(100_000)))
    assert problem(load_idx, no_header, files.labels) == "zeros.gz: must be at most 5000 bytes unpacked, got more"
    assert problem(load_idx, files.write("large", bytes(5001)), files.labels) == (
        "large: must be at most 5000 bytes, got 5001"
    )
    text = problem(load_npz, npz(files, other=np.zeros(5000)))
    assert re.fullmatch(r"own\.npz: must be at most 5000 bytes unpacked, got \d+", text)


HTML = b"\n<!DOCTYPE html><html><body>407 Proxy Authentication Required</body></html>"
BAD_IMAGES = {
    "truncated gzip": (
        "x.gz",
        gzip.compress(idx(IMAGES))[:300],
        r"x\.gz: must be a whole gzip file, got 300 bytes that end early or are damaged .*; fetch .*",
    ),
    "gzip with a flipped byte": (
        "x.gz",
        gzip.compress(idx(IMAGES))[:-6] + b"\0" + gzip.compress(idx(IMAGES))[-5:],
        r"x\.gz: must be a whole gzip file, got \d+ bytes that end early or are damaged \(CRC .*",
    ),
    "gzip with more behind it": (
        "x.gz",
        gzip.compress(idx(IMAGES)) + b"<html>",
        r"x\.gz: must be a whole gzip file, got .*",
    ),
    "HTML in place of gzip": (
        "x.gz",
        HTML,
        r"x\.gz: must be gzip \(starts with 1f 8b\), got HTML .*; fetch the file again",
    ),
    "HTML after a byte order mark": ("x.gz", b"\xef\xbb\xbf" + HTML, r"x\.gz: must be gzip .*, got HTML .*"),
    "HTML, unzipped": ("x", HTML, r"x: magic number must be 2051, got HTML; fetch the file again"),
    "727 bytes in place of gzip": (
        "x.gz",
        b"a" * 727,
        r"x\.gz: must be gzip \(starts with 1f 8b\), got 61 61 61 61 in 727 bytes; fetch the file again",
    ),
    "an empty .gz": ("x.gz", b"", r"x\.gz: must be gzip .*, got no bytes in 0 bytes; fetch the file again"),
    "an empty file": (
        "x",
        b"",
        r"x: must be at least 16 bytes \(IDX header, magic number 2051\), got 0; fetch.*",
    ),
    "727 bytes of the right file": (
        "x",
        idx(IMAGES)[:600],
        r"x: must be 656 bytes for shape \(40, 4, 4\), got 600; fetch the file again",
    ),
    "bytes too many": ("x", idx(IMAGES) + b"\0", r"x: must be 656 bytes for shape \(40, 4, 4\), got 657; .*"),
    "still gzipped": (
        "x",
        gzip.compress(idx(IMAGES), mtime=0),
        r"x: magic number must be 2051, got 529205\d\d\d: the file is still gzipped; name it \.gz",
    ),
    "already unpacked": (
        "x.gz",
        idx(IMAGES),
        r"x\.gz: must be gzip .*, got magic number 2051: the file is already unpacked; take \.gz off .*",
    ),
    "labels in place of images": ("x", idx(LABELS), r"x: magic number must be 2051, got 2049"),
    "byte order": (
        "x",
        struct.pack("<I", 2051) + idx(IMAGES)[4:],
        r"x: magic number must be 2051, got 50855936 \(the byte order is reversed\)",
    ),
    "another magic number": (
        "x",
        struct.pack(">I", 1234) + idx(IMAGES)[4:],
        r"x: magic number must be 2051, got 1234",
    ),
    "IDX of floats": (
        "x",
        struct.pack(">I", 0x0D03) + idx(IMAGES)[4:],
        r"x: magic number must be 2051, got 3331",
    ),
    "fewer images than labels": (
        "x",
        idx(IMAGES[:39]),
        r"idx@\w{6}: images and labels must be as many, got 39 and 40",
    ),
    "second half zeroed": (
        "x",
        idx(IMAGES * (np.arange(40) < 20)[:, None, None]),
        r"idx@\w{6}: at most 1% of the images may be blank, got 20 of 40",
    ),
    "all zero": ("x", idx(IMAGES * 0), r"idx@\w{6}: pixels must reach 1, got at most 0 .*"),
    "images without pixels": ("x", idx(IMAGES[:, :0]), r"idx@\w{6}: must hold at least one pixel, got .*"),
}


@pytest.mark.parametrize(("name", "content", "expected"), BAD_IMAGES.values(), ids=BAD_IMAGES)
def test_a_bad_image_file_says_what_is_wrong(files, name, content, expected):
    text = problem(load_idx, files.write(name, content), files.labels)
    assert re.fullmatch(expected, text), text


def test_a_gzipped_file_read_raw_has_the_number_that_people_report(files):
    # field case E1: 529205256 is 1f 8b 08 08, a gzip that keeps the name of its file
    raw = gzip.compress(idx(IMAGES))
    named = raw[:3] + b"\x08" + raw[4:10] + b"train-images-idx3-ubyte\0" + raw[10:]
    assert gzip.decompress(named) == idx(IMAGES)

    assert problem(load_idx, files.write("x", named), files.labels) == (
        "x: magic number must be 2051, got 529205256: the file is still gzipped; name it .gz"
    )


BAD_LABELS = {
    "above nine": (np.where(LABELS == 3, 10, LABELS), "labels must be between 0 and 9, got 10"),
    "a class is missing": (
        np.where(LABELS == 3, 4, LABELS),
        "labels must hold every class from 0 to 9, got none of 3",
    ),
    "all zero": (
        LABELS * 0,
        "labels must hold every class from 0 to 9, got none of 1, 2, 3, 4, 5, 6, 7, 8, 9",
    ),
    "too few": (LABELS[:30], "images and labels must be as many, got 40 and 30"),
}


@pytest.mark.parametrize(("labels", "expected"), BAD_LABELS.values(), ids=BAD_LABELS)
def test_a_bad_label_file_says_what_is_wrong(files, labels, expected):
    text = problem(load_idx, files.images, files.write("x", idx(labels)))
    assert text.endswith(f": {expected}")


def test_a_missing_file_is_named_without_its_folder(files):
    text = problem(load_idx, files.folder / "none.gz", files.labels)
    assert text == "none.gz: cannot be read: No such file or directory"


# A user's own .npz


def npz(files: Files, **arrays: np.ndarray) -> Path:
    path = files.folder / "own.npz"
    np.savez(path, **({"x_train": IMAGES, "y_train": LABELS} | arrays))  # pyright: ignore[reportArgumentType]
    return path


def test_an_npz_of_bytes_is_scaled_and_one_of_shares_is_not(files):
    scaled = IMAGES / np.float32(255)
    from_bytes, from_floats = (load_npz(npz(files, x_train=x), name="mine") for x in (IMAGES, scaled))

    np.testing.assert_array_equal(from_bytes.images, scaled.reshape(40, 16))
    np.testing.assert_array_equal(from_bytes.images, from_floats.images)
    assert from_floats.images.dtype == np.float32
    assert from_bytes.labels.tolist() == LABELS.tolist()


def test_the_name_of_an_npz_is_the_file_s_or_the_given_and_holds_a_checksum(files):
    names = [load_npz(npz(files, x_train=x)).name for x in (IMAGES, IMAGES[::-1])]

    assert all(re.fullmatch(r"own@\w{6}", name) for name in names)
    assert names[0] != names[1]
    assert load_npz(npz(files), name="fashion").name.startswith("fashion@")


BAD_ARRAYS = {
    "0-255 as floats": (
        {"x_train": IMAGES.astype(np.float32)},
        r"float pixels must be in \[0, 1\], got 1 to 255 \(divide by 255\?\)",
    ),
    "0-255 as whole numbers": (
        {"x_train": IMAGES.astype(np.int64)},
        r"pixels must be uint8 or floats in \[0, 1\], got int64",
    ),
    "divided twice": (
        {"x_train": IMAGES / 255 / 255},
        r"pixels must reach 1, got at most 0\.0039\d+ \(divided by 255 twice\?\)",
    ),
    "centred": (
        {"x_train": IMAGES / 255 - 0.5},
        r"float pixels must be in \[0, 1\], got -0\.4\d+ to 0\.5 .*",
    ),
    "nan": ({"x_train": IMAGES * np.nan}, r"float pixels must be in \[0, 1\], got nan to nan .*"),
    "beyond float32": ({"x_train": IMAGES * 1e300}, r"float pixels must be in \[0, 1\], got inf to inf .*"),
    "negative label": ({"y_train": LABELS.astype(int) - 1}, r"labels must be between 0 and 9, got -1"),
    "labels as floats": ({"y_train": LABELS / 1.0}, r"labels must be whole numbers, got float64"),
    "labels one-hot": ({"y_train": np.eye(10)[LABELS]}, r"must be images \(n, …\) and labels \(n,\), got .*"),
    "one image too few": ({"x_train": IMAGES[1:]}, r"images and labels must be as many, got 39 and 40"),
}


@pytest.mark.parametrize(("arrays", "expected"), BAD_ARRAYS.values(), ids=BAD_ARRAYS)
def test_bad_arrays_say_what_is_wrong(files, arrays, expected):
    text = problem(load_npz, npz(files, **arrays))
    assert re.fullmatch(rf"own@\w{{6}}: {expected}", text), text


def test_an_npz_that_is_none(files):
    whole = npz(files).read_bytes()
    np.savez(files.folder / "names.npz", images=IMAGES, y_train=LABELS)
    np.savez(files.folder / "pickle.npz", x_train=np.array([{}], object), y_train=LABELS)
    np.save(files.folder / "single.npy", IMAGES)

    assert problem(load_npz, files.folder / "names.npz") == ("names.npz: must hold x_train and y_train, lacks x_train")
    for bad in (
        files.write("half.npz", whole[: len(whole) // 2]),
        files.write("html.npz", HTML),
        files.write("empty.npz", b""),
        files.write("flipped.npz", whole.replace(IMAGES.tobytes()[:8], bytes(8))),
        files.folder / "pickle.npz",
        files.folder / "single.npy",
    ):
        assert problem(load_npz, bad).startswith(f"{bad.name}: must be ")
    assert problem(load_npz, files.folder / "none.npz") == "none.npz: cannot be read: No such file or directory"
