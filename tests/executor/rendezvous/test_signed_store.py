"""Values in the store where ranks meet: only those signed by the own secret are taken."""

import base64
import hashlib
import hmac
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import pairwise

import pytest
from torch.distributed import HashStore, PrefixStore, TCPStore

from executor.rendezvous.rank_environment import RankEnvironment, held_port, local_environment
from executor.rendezvous.rank_store import opened_store
from executor.rendezvous.signed_store import SignatureError, SignedStore, derived_key
from executor.supervision.status_board import StatusBoard
from executor.supervision.supervisor import supervise
from groundwork.errors import ConfigError

pytestmark = pytest.mark.timeout(60)
KEY, OTHER = b"k" * 32, b"o" * 32
RANKS = 2


def purpose(key):
    return f"the value {key!r}"


@pytest.fixture
def plain():
    return TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=20))


def test_values_come_back_through_torch_and_lie_signed_in_the_store(plain):
    """The signature is that of RFC 2104 over the lengths and texts of key, salt and value."""
    signed = SignedStore(plain, KEY, purpose)
    store = PrefixStore("group", signed)  # torch's own calls go this way
    value = bytes(range(256))
    store.set("a", value)

    assert store.get("a") == value
    assert store.multi_get(["a"]) == [value]
    assert store.check(["a"])
    assert not store.check(["b"])
    row = base64.b64decode(plain.get("group/a"))
    text = b"".join(len(part).to_bytes(8) + part for part in (b"group/a", row[32:40], row[40:]))
    assert row == hmac.new(KEY, text, hashlib.sha256).digest() + row[32:40] + value


def test_sets_and_counts_are_those_of_an_unsigned_store(plain):
    """The same calls on torch's own store are the oracle."""
    signed, oracle = SignedStore(plain, KEY, purpose), HashStore()
    calls = [
        ("compare_set", "a", "", "one"),
        ("compare_set", "a", "", "two"),
        ("compare_set", "a", "one", "three"),
        ("compare_set", "a", "none", "four"),
        ("compare_set", "b", "none", "five"),
        ("add", "c", 0),
        ("add", "c", 3),
        ("add", "c", -1),
        ("add", "c", 0),
    ]

    assert [getattr(signed, name)(*arguments) for name, *arguments in calls] == [
        getattr(oracle, name)(*arguments) for name, *arguments in calls
    ]


def test_no_addition_of_several_ranks_is_lost(plain):
    """Each comes back with a count of its own."""

    def count(_):
        store = SignedStore(TCPStore("127.0.0.1", plain.port, is_master=False, wait_for_workers=False), KEY, purpose)
        return [store.add("count", 1) for _ in range(20)]

    with ThreadPoolExecutor(4) as pool:
        rows = list(pool.map(count, range(4)))

    assert sorted(number for row in rows for number in row) == list(range(1, 81))
    assert all(a < b for row in rows for a, b in pairwise(row))


@pytest.mark.parametrize(
    "change",
    [
        lambda good: b"",
        lambda good: b"plain text",
        lambda good: base64.b64encode(bytes(40) + b"value"),
        lambda good: base64.b64encode(base64.b64decode(good)[:-1] + b"?"),
        lambda good: base64.b64encode(base64.b64decode(good)[:20]),
    ],
    ids=["empty", "plain", "zeros", "another value", "cut"],
)
def test_a_value_without_the_signature_is_refused(plain, change):
    signed = SignedStore(plain, KEY, purpose)
    signed.set("a", "value")
    plain.set("a", change(plain.get("a")).decode())

    for call in (lambda: signed.get("a"), lambda: signed.multi_get(["a"]), lambda: signed.add("a", 1)):
        with pytest.raises(SignatureError, match="the value 'a' in the store where they meet has no signature") as told:
            call()
        assert "\n" not in str(told.value)


def test_a_value_of_another_key_or_secret_is_refused(plain):
    """Neither moves from key to key."""
    signed = SignedStore(plain, KEY, purpose)
    signed.set("a", "value")
    plain.set("b", plain.get("a").decode())
    with pytest.raises(SignatureError, match="the value 'b'"):
        signed.get("b")
    with pytest.raises(SignatureError, match="the value 'a'"):
        SignedStore(plain, OTHER, purpose).get("a")


def test_keys_differ_by_purpose_and_its_parts():
    keys = {derived_key(KEY, *parts) for parts in [(b"ab",), (b"a", b"b"), (b"b", b"a"), (b"", b"ab"), (b"ab", b"")]}

    assert len(keys) == 5


def meet(secrets):
    """What ranks with these secrets get from each other through the store, or their errors."""

    def enter(rank, port):
        where = RankEnvironment(
            rank=rank, ranks=RANKS, local_rank=rank, address="127.0.0.1", port=port, secret=secrets[rank]
        )
        try:
            store = opened_store(where, timedelta(seconds=20))
            store.set(f"from-{rank}", str(rank))
            return store, store.get(f"from-{1 - rank}")
        except ConfigError as error:
            return None, str(error)

    with held_port() as port, ThreadPoolExecutor(RANKS) as pool:
        return list(pool.map(enter, range(RANKS), [port] * RANKS))


def test_ranks_with_one_secret_meet():
    assert [value for _, value in meet([KEY, KEY])] == [b"1", b"0"]


def test_ranks_with_two_secrets_both_say_so():
    """None is left waiting for the other."""
    told = [value for _, value in meet([KEY, OTHER])]

    for rank, line in enumerate(told):
        assert line == (
            f"secret_file must be the same for all ranks: the greeting of rank {1 - rank} in the store where they meet"
            " has no signature by the secret of this rank"
        )


def test_values_of_another_run_are_refused_though_the_secret_is_the_same():
    """Somebody who kept what ranks wrote yesterday cannot give it to them today."""
    (earlier, _), _ = meet([KEY, KEY])
    (later, _), _ = meet([KEY, KEY])
    kept = earlier._store.get("from-0")
    later._store.set("from-0", kept.decode())

    with pytest.raises(SignatureError, match="a connection of the ranks"):
        later.get("from-0")


STRANGER = """
from executor.supervision import rank_work
from executor.runtime.devices import CpuDevice

opened = rank_work.opened_store

def opened_store(where, timeout):
    store = opened(where, timeout)
    if where.rank == 1:
        store._key = bytes(32)
    return store

def work(where, status):
    with rank_work.process_group(where, CpuDevice()):
        pass

rank_work.opened_store = opened_store
rank_work.serve(work)
"""
"""Two ranks that have greeted each other; then one of them signs otherwise, as a stranger in its place would."""


def test_torch_connects_to_no_address_that_a_stranger_has_written(tmp_path, warm_programs):
    """What the back end of torch reads is checked as well; the error comes through it unharmed."""
    secret = tmp_path / "secret"
    secret.touch(mode=0o600)
    secret.write_bytes(KEY)
    with (
        held_port() as port,
        pytest.raises(ConfigError, match="a connection of the ranks in the store where they meet"),
    ):
        supervise(
            [[str(warm_programs / "python"), "-c", STRANGER]] * RANKS,
            environments=[
                local_environment(rank, RANKS, port, 1) | {"ORRERY_SECRET_FILE": str(secret)} for rank in range(RANKS)
            ],
            board=StatusBoard.create(tmp_path / "board", RANKS),
        )
