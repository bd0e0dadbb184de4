"""The kinds of layers: shapes, needs, parameters and work of each."""

from planner.operations.convolution import Convolution
from planner.operations.dropout import Dropout
from planner.operations.joining import Add, Concat
from planner.operations.linear import Linear
from planner.operations.loss import Loss
from planner.operations.normalisation import BatchNorm, LocalResponseNorm
from planner.operations.partial import PartialProduct, PartialSum
from planner.operations.pooling import GlobalPooling, Pooling

__all__ = [
    "Add",
    "BatchNorm",
    "Concat",
    "Convolution",
    "Dropout",
    "GlobalPooling",
    "Linear",
    "LocalResponseNorm",
    "Loss",
    "PartialProduct",
    "PartialSum",
    "Pooling",
]
