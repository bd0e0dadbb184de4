"""What the tests of compression in plans share."""

from planner.compression.settings import UNCOMPRESSED
from planner.lowering.lower_strategy import lower
from planner.models.builder import ModelBuilder
from planner.strategies.micro_batches import WHOLE_BATCH
from planner.strategies.named_strategies import spaces_of


def lowered(model, strategy, compressed=UNCOMPRESSED, micro_batching=WHOLE_BATCH, **options):
    """The program of a strategy."""
    spaces = spaces_of(model.graph, strategy, len(model.cluster.devices))
    return lower(model, spaces, micro_batching=micro_batching, compressed=compressed, **options)


def pair(channels=6, batch=4):
    """Two fully connected layers: 8 numbers in, ``channels`` between, 3 out."""
    net = ModelBuilder("pair", batch=batch, image=(8, 1, 1))
    net.linear(channels, name="one")
    net.linear(3, name="two")
    net.loss()
    return net.build()
