"""Which process this is among those of a run."""

import socket

import pytest
from ports import free_port

from executor.rendezvous.rank_environment import (
    RankEnvironment,
    held_port,
    local_environment,
    rank_environment,
)
from groundwork.errors import ConfigError

NAMES = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"]


def test_a_local_rank_finds_its_place():
    """What is written for a rank is what it reads, with the names that torchrun uses."""
    environment = local_environment(2, 4, 29500, 1)

    assert rank_environment(environment) == RankEnvironment(
        rank=2, ranks=4, local_rank=2, address="127.0.0.1", port=29500
    )
    assert set(environment) == {*NAMES, "OMP_NUM_THREADS"}
    elsewhere = local_environment(2, 4, 29500, 1) | {"MASTER_ADDR": "10.0.0.1", "LOCAL_RANK": "0"}
    assert rank_environment(elsewhere).address == "10.0.0.1"


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_variable_is_named(name):
    """An environment that is not whole is refused."""
    environment = local_environment(0, 1, 29500, 1)
    del environment[name]

    with pytest.raises(ConfigError, match=f"^{name} must be set in the environment"):
        rank_environment(environment)


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("RANK", "one", "RANK must be a whole number, got 'one'"),
        ("RANK", "4", "RANK must be in 0 to WORLD_SIZE - 1 = 3, got 4"),
        ("LOCAL_RANK", "2", "LOCAL_RANK must be in 0 to RANK = 1, got 2"),
        ("MASTER_PORT", "65536", "MASTER_PORT must be in 1 to 65535, got 65536"),
    ],
)
def test_a_wrong_variable_is_named(name, value, rule):
    """Numbers are whole and in range."""
    with pytest.raises(ConfigError, match=rule):
        rank_environment(local_environment(1, 4, 29500, 1) | {name: value})


def test_a_free_port_can_be_used():
    """A server can listen there."""
    with socket.create_server(("127.0.0.1", free_port())):
        pass


def test_a_held_port_is_for_the_ranks_alone():
    """Nobody else can bind it meanwhile, but the store of rank 0 listens there."""
    from torch.distributed import TCPStore

    with held_port() as port:
        with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
            stranger.bind(("127.0.0.1", port))
        store = TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False)
        TCPStore("127.0.0.1", port, is_master=False, wait_for_workers=False).set("word", "heard")
        assert store.get("word") == b"heard"
