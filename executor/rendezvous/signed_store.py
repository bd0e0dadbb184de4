"""Store whose values carry a signature by a secret, so that what strangers write into it is refused.

The store where ranks meet takes values from whoever connects.  Signed values are safe from forgery, not from deletion:
a stranger who reaches the store can end a run, but cannot take part in it.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Callable, Sequence
from datetime import timedelta

from torch.distributed import Store  # type: ignore[attr-defined]  # its stubs hide it

from groundwork.errors import ConfigError

_DIGEST = "sha256"
_SIGNATURE_BYTES, _SALT_BYTES, _LENGTH_BYTES = hashlib.new(_DIGEST).digest_size, 8, 8


class SignatureError(ConfigError):
    """Value in the store without the signature of this run's secret."""


def derived_key(secret: bytes, *purpose: bytes) -> bytes:
    """Return a key for one purpose, from which neither the secret nor another key follows."""
    # with their lengths, so that no other parts make the same text
    text = b"".join(len(part).to_bytes(_LENGTH_BYTES) + part for part in purpose)
    return hmac.digest(secret, text, _DIGEST)


class SignedStore(Store):
    """Store that writes to another one, with an HMAC-SHA256 over key and value, and returns only what has that.

    The back ends of torch call it by its base class.  Counts are signed as well: ``add`` compares and sets.
    """

    def __init__(self, store: Store, key: bytes, purpose_of: Callable[[str], str]) -> None:
        """Sign what goes through a store."""
        super().__init__()
        self._store, self._key, self._purpose_of = store, key, purpose_of

    def set(self, key: str, value: str | bytes) -> None:
        """Write a value with its signature."""
        self._store.set(key, self._signed(key, _bytes(value)).decode())

    def get(self, key: str) -> bytes:
        """Wait for a value and return it.

        Raises:
            SignatureError: Its signature is not of the own key.
        """
        return self._value(key, self._store.get(key))

    def multi_get(self, keys: Sequence[str]) -> list[bytes]:
        """Return the values of several keys; errors as for ``get``."""
        return [self._value(key, row) for key, row in zip(keys, self._store.multi_get(list(keys)), strict=True)]

    def compare_set(self, key: str, expected: str | bytes, desired: str | bytes) -> bytes:
        """Write a value in place of an expected one, or of none if that is empty; return the value afterwards."""
        while True:
            before, value = self._now(key)
            if value != _bytes(expected):
                return value or _bytes(expected)
            if self._replaced(key, before, _bytes(desired)):
                return _bytes(desired)

    def add(self, key: str, amount: int) -> int:
        """Add to a count, which begins at 0, and return it; errors as for ``get``."""
        while True:
            before, value = self._now(key)
            count = int(value or b"0") + amount
            if (before and not amount) or self._replaced(key, before, str(count).encode()):
                return count

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Wait until all keys have values."""
        if timeout is None:
            self._store.wait(list(keys))
        else:
            self._store.wait(list(keys), timeout)

    def check(self, keys: Sequence[str]) -> bool:
        """Return whether all keys have values."""
        return bool(self._store.check(list(keys)))

    def set_timeout(self, timeout: timedelta) -> None:
        """Set the longest wait of a call."""
        self._store.set_timeout(timeout)

    def deleteKey(self, key: str) -> bool:  # noqa: N802 - torch calls it by this name
        """Delete a value."""
        return bool(self._store.delete_key(key))

    def getNumKeys(self) -> int:  # noqa: N802 - torch calls it by this name
        """Return the number of keys."""
        return int(self._store.num_keys())

    def _now(self, key: str) -> tuple[str, bytes]:
        """Return the signed text and the value of a key, both empty if it has none."""
        if not self._store.check([key]):
            return "", b""
        signed = self._store.get(key)
        return signed.decode(errors="replace"), self._value(key, signed)

    def _replaced(self, key: str, before: str, value: bytes) -> bool:
        """Write a value in place of a signed text; return whether no other rank was faster."""
        signed = self._signed(key, value)
        # the salt makes every text another one: an equal value by another rank is not taken for this one
        return bool(self._store.compare_set(key, before, signed.decode()) == signed)

    def _signed(self, key: str, value: bytes) -> bytes:
        """Return signature, salt and value as text, which every call of a store takes."""
        salt = secrets.token_bytes(_SALT_BYTES)
        return base64.b64encode(derived_key(self._key, key.encode(), salt, value) + salt + value)

    def _value(self, key: str, signed: bytes) -> bytes:
        try:
            row = base64.b64decode(signed, validate=True)
        except binascii.Error:
            row = b""
        signature, rest = row[:_SIGNATURE_BYTES], row[_SIGNATURE_BYTES:]
        salt, value = rest[:_SALT_BYTES], rest[_SALT_BYTES:]
        if not hmac.compare_digest(signature, derived_key(self._key, key.encode(), salt, value)):
            raise SignatureError(
                f"secret_file must be the same for all ranks: {self._purpose_of(key)} in the store where they meet has"
                " no signature by the secret of this rank"
            )
        return value


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value
