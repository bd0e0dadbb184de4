"""The reader of the MNIST files: what is written is read, what is not of the format is refused in one line."""

import gzip

import numpy as np
import pytest
from mnist_files import idx_bytes, write_mnist

from executor.data.idx import MNIST_FILES, read_idx, read_mnist
from groundwork.errors import ConfigError


@pytest.mark.parametrize("packed", [False, True])
def test_what_was_written_is_read(tmp_path, packed):
    arrays = write_mnist(tmp_path, packed=packed)
    for use, (images, labels) in MNIST_FILES.items():
        found, classes = read_mnist(tmp_path, use)
        np.testing.assert_array_equal(found[:, 0], arrays[images])
        np.testing.assert_array_equal(classes, arrays[labels])
        assert found.shape[1:] == (1, 28, 28)


IMAGES = np.zeros((3, 4, 5))
DAMAGED = {
    "labels for images": (idx_bytes(np.zeros(3)), r"magic number 00000803, got 00000801"),
    "floats": (idx_bytes(IMAGES, magic=b"\x00\x00\x0d\x03"), r"magic number 00000803, got 00000d03"),
    "empty": (b"", r"magic number 00000803, got nothing"),
    "text": (b"<html>no such file", r"magic number 00000803, got 3c68746d"),
    "no sizes": (bytes((0, 0, 8, 3, 0, 0)), r"must hold 3 sizes after its magic number, got 6 bytes"),
    "cut": (idx_bytes(IMAGES, cut=7), r"must hold 3 x 4 x 5 bytes after its sizes, got 53"),
    "too long": (idx_bytes(IMAGES) + b"x", r"must hold 3 x 4 x 5 bytes after its sizes, got more"),
    "damaged gzip": (gzip.compress(idx_bytes(IMAGES))[:-9], r"cannot be read: "),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_files_are_refused(tmp_path, case):
    content, message = DAMAGED[case]
    path = tmp_path / "images"
    path.write_bytes(content)

    with pytest.raises(ConfigError, match=message) as refused:
        read_idx(path, 3)
    assert str(refused.value).startswith(f"data {path} ")
    assert "\n" not in str(refused.value)


def test_missing_files_and_labels_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="data must be the folder of the MNIST files, got"):
        read_mnist(tmp_path / "none", "training")
    with pytest.raises(ConfigError, match=r"must hold train-images-idx3-ubyte or .*\.gz, which it do"):
        read_mnist(tmp_path, "training")
    write_mnist(tmp_path)
    (tmp_path / MNIST_FILES["testing"][1]).write_bytes(idx_bytes(np.zeros(7)))
    with pytest.raises(ConfigError, match="must hold a label for each of 8 images, got 7"):
        read_mnist(tmp_path, "testing")
