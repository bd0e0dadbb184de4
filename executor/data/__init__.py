"""Training data: generated, arrays in files, or folders of images; every rank reads its part of a mini-batch."""

from executor.data.dataset import Dataset
from executor.data.load import load_data

__all__ = ["Dataset", "load_data"]
