"""One point of a sweep: all inputs of its result, and their hash."""

import hashlib
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import msgspec

from groundwork.file_fields import Switch, Whole
from planner.plan.plan_options import Precision
from planner.plan.plan_text import read_plan_text

_FOLDERS = ("groundwork", "hwprofiles", "simulator", "planner", "studies")
_SUFFIXES = {".py", ".yaml", ".yml", ".csv", ".json"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPoint:
    """A model on a cluster under a strategy; files of sweeps may list points with these keys."""

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012 - read by pydantic where a file lists points
    model: str
    cluster: str
    """Cluster with its parameters and changes, as ``load_cluster`` takes them."""
    batch: Whole
    strategy: str
    gradient_sync: str = ""
    """Algorithm; empty: ``library`` where the cluster describes one, else ``ring``."""
    framework: str = ""
    """Framework with parameters; empty: ``ddp`` where the cluster describes a library, else ``ideal``."""
    dtype: Precision = "float32"
    """Data type of tensors and products."""
    interference: Switch = None
    """Whether messages and arithmetic take from one another; None: where the cluster declares channels."""
    spread: Switch = None
    """Whether iterations wait for the slowest rank; None: where the cluster declares a spread."""
    batch_norm: str = "local"
    compress_gradients: str = ""
    compress_activations: str = ""
    sub_batches: Whole = 1

    @property
    def digest(self) -> str:
        """Hash of the point, of the files that it names, and of the code and data that compute its result."""
        strategy, _ = read_plan_text(self.strategy)
        files = [_file_digest(name) for name in (self.model, strategy, *_cluster_files(self.cluster))]
        text = msgspec.json.encode([asdict(self), files, inputs_digest()])
        return hashlib.sha256(text).hexdigest()[:32]


@cache
def inputs_digest() -> str:
    """Return the hash of everything that computes a result: the packages' code, catalogues and profiles."""
    root, digest = Path(__file__).parents[2], hashlib.sha256()
    for folder in _FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in _SUFFIXES and "__pycache__" not in path.parts:
                digest.update(f"{path.relative_to(root)}\0".encode())
                digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


@cache
def _file_digest(name: str) -> str:
    """Return the hash of a file that a point names; empty for a name of the catalogues."""
    path = Path(name)
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path.suffix and path.is_file() else ""


@cache
def _cluster_files(spec: str) -> tuple[str, ...]:
    """Return the cluster's file, and the profiles that it names by path."""
    from hwprofiles.catalogue.cluster_catalogue import cluster_path, load_cluster

    path = cluster_path(spec)
    profiles = dict.fromkeys(device.profile for device in load_cluster(spec).devices)
    return (str(path), *(name for name in profiles if Path(name).suffix))


def point_columns(point: SweepPoint) -> dict[str, object]:
    """Return a point's fields as columns, and parameters and changes of the cluster as further columns."""
    columns: dict[str, object] = asdict(point)
    name, _, text = point.cluster.partition(":") if not Path(point.cluster).is_file() else (point.cluster, "", "")
    columns["cluster"] = name
    for assignment in text.split(",") if text else ():
        key, _, value = assignment.partition("=")
        columns[key.strip()] = _number(value.strip())
    return columns


def _number(text: str) -> float | int | str:
    """Return the number that a text stands for, or the text."""
    for read in (int, float):
        try:
            return read(text)
        except ValueError:
            continue
    return text
