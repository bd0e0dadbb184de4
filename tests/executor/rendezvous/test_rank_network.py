"""Which network ranks may use, and what it takes where they are on several machines."""

import os

import pytest

from executor.rendezvous import rank_network
from executor.rendezvous.rank_environment import local_environment, rank_environment
from executor.rendezvous.rank_network import check_network, several_machines, store_address, use_network
from groundwork.errors import ConfigError

SECRET = b"sixteen bytes it is"
ELSEWHERE = "192.0.2.7"
"""An address that the Internet keeps for documents (RFC 5737)."""


@pytest.fixture
def secret_file(tmp_path):
    path = tmp_path / "secret"
    path.touch(mode=0o600)
    path.write_bytes(SECRET + b"\n")
    return path


def where(address="127.0.0.1", **variables):
    return rank_environment(local_environment(0, 2, 29500, 1) | {"MASTER_ADDR": address} | variables)


@pytest.mark.parametrize(
    ("address", "here", "several"),
    [
        ("127.0.0.1", "1", False),
        ("localhost", "1", False),
        ("::1", None, False),
        (ELSEWHERE, "1", True),
        (ELSEWHERE, None, True),
    ],
)
def test_ranks_are_on_several_machines_unless_something_says_otherwise(address, here, several):
    """All are here by torchrun's count, or meet where only this machine comes."""
    count = {} if here is None else {"LOCAL_WORLD_SIZE": here}

    assert several_machines(where(address), count) is several


def test_ranks_that_are_all_here_meet_at_loopback():
    """Whatever address the launcher has given, but for torchrun, whose store is at that address."""
    assert where(ELSEWHERE, LOCAL_WORLD_SIZE="2").address == "127.0.0.1"
    assert where(ELSEWHERE, LOCAL_WORLD_SIZE="1").address == ELSEWHERE
    under = where(ELSEWHERE, LOCAL_WORLD_SIZE="2", TORCHELASTIC_USE_AGENT_STORE="True")
    assert under.address == ELSEWHERE
    assert not several_machines(under, {"LOCAL_WORLD_SIZE": "2"})


def test_the_secret_is_the_file_without_the_end_of_its_line(secret_file):
    found = where(ORRERY_SECRET_FILE=str(secret_file))

    assert found.secret == SECRET
    assert "sixteen" not in repr(found)


@pytest.mark.parametrize(
    ("content", "mode", "rule"),
    [
        (b"fifteen bytes..\n", 0o600, "must hold at least 16 bytes, got 15"),
        (SECRET, 0o640, r"must be for its owner alone \(chmod 600\), got mode 640"),
        (SECRET, 0o604, ".*got mode 604"),
        (bytes(2**20 + 1), 0o600, "must have at most 1 MiB"),
        (None, 0o600, "cannot be read: No such file"),
    ],
)
def test_a_secret_that_is_none_is_refused(secret_file, content, mode, rule):
    secret_file.unlink()
    if content is not None:
        secret_file.write_bytes(content)
        secret_file.chmod(mode)

    with pytest.raises(ConfigError, match=rf"^secret file {secret_file} {rule}") as told:
        where(ORRERY_SECRET_FILE=str(secret_file))
    assert "\n" not in str(told.value)


def test_several_machines_need_a_secret_or_the_word_that_none_is_needed(secret_file):
    with pytest.raises(ConfigError, match=r"^secret_file must name a file that .* --no-secret .*; got none$"):
        check_network(where(ELSEWHERE))

    check_network(where(ELSEWHERE, ORRERY_SECRET_FILE=str(secret_file)))
    check_network(where(ELSEWHERE, ORRERY_NO_SECRET="1"))
    check_network(where())
    with pytest.raises(ConfigError, match="no_secret must be left out with a secret file"):
        check_network(where(ELSEWHERE, ORRERY_SECRET_FILE=str(secret_file), ORRERY_NO_SECRET="1"))


def test_an_unknown_interface_is_refused_with_those_there_are():
    with pytest.raises(ConfigError, match=r"interface must be one of this machine's: .*\blo\b.*; got 'lost0'"):
        check_network(where(ORRERY_INTERFACE="lost0"))


def used(monkeypatch, rank, **before):
    """The interfaces of the back ends afterwards."""
    names = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
    for name in names:
        monkeypatch.setenv(name, before.get(name, ""))
        if name not in before:
            monkeypatch.delenv(name)
    use_network(rank)
    return [os.environ[name] for name in names]


def test_the_back_ends_are_held_to_one_interface(monkeypatch):
    """Loopback here, the named one, or the one towards the others; what the user set in the environment stays."""
    assert used(monkeypatch, where()) == ["lo", "=lo"]
    assert used(monkeypatch, where(ORRERY_INTERFACE="eth7")) == ["eth7", "=eth7"]
    assert used(monkeypatch, where(ORRERY_INTERFACE="eth7"), GLOO_SOCKET_IFNAME="lo") == ["eth7", "=eth7"]
    monkeypatch.setattr(rank_network, "_routed_interface", lambda _: "eth3")
    assert used(monkeypatch, where(ELSEWHERE)) == ["eth3", "=eth3"]
    assert used(monkeypatch, where(ELSEWHERE), GLOO_SOCKET_IFNAME="ib0") == ["ib0", "=eth3"]


def test_an_address_that_other_machines_do_not_reach_is_refused(monkeypatch):
    """As where a machine's own name stands for its loopback."""
    monkeypatch.setattr(rank_network, "store_address", lambda _: (2, "127.0.1.1"))

    with pytest.raises(ConfigError, match=r"^MASTER_ADDR must be an address that other machines reach, got 'node0'"):
        use_network(where("node0"))


def test_a_name_that_nobody_knows_is_refused():
    with pytest.raises(ConfigError, match=r"^MASTER_ADDR must be known here, got 'nowhere.invalid'"):
        store_address(where("nowhere.invalid"))
