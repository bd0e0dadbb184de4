"""What a browser asks to compare: names of the catalogue or of uploads, numbers, and never code or a path."""

import os
import re
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from groundwork.errors import ConfigError
from groundwork.rule_texts import broken_rules
from groundwork.suggestions import did_you_mean
from hwprofiles.catalogue.cluster_catalogue import cluster_names, cluster_with, load_cluster
from hwprofiles.compute.profile_file import profile_names
from hwprofiles.devices.device_graph import DeviceGraph
from orrery.workbench.working_folder import FILE_NAME, path_inside
from planner.graph.computation_graph import ComputationGraph
from planner.models.registry import load_model, model_names
from planner.plan.plan_options import DTYPE_BYTES, Precision, SyncAlgorithm
from planner.plan.plan_request import check_plan_text
from planner.plan.plan_text import plan_list_text, read_plan_text
from planner.strategies.strategy_file import SUFFIXES

UPLOAD = "upload:"
"""Begins the name of an uploaded file."""
_MODEL_PARAMETERS = re.compile(r"[a-z_]+=[0-9]{1,18}(,[a-z_]+=[0-9]{1,18})*")
_CLUSTER_PARAMETERS = re.compile(r"[a-z_0-9]+=[0-9.eE+-]{1,20}(,[a-z_0-9]+=[0-9.eE+-]{1,20})*")
_EDIT_NAME, _EDIT_VALUE = re.compile(r"[^=,\s\\]{1,300}"), re.compile(r"[A-Za-z0-9.@+-]{1,60}")
_Word = Annotated[str, Field(min_length=1, max_length=300)]


class BenchSubject(BaseModel):
    """A network, a cluster with changes and a price, and the strategies to compare on it."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    model: _Word
    cluster: _Word
    batch: Annotated[int, Field(ge=1, le=10**8)]
    strategies: Annotated[list[_Word], Field(min_length=1, max_length=12)]
    gradient_sync: SyncAlgorithm | None = None
    dtype: Precision = "float32"
    edits: Annotated[dict[str, str], Field(max_length=200)] = {}
    """Changes of the cluster by name, as of ``orrery whatif --set``."""
    price: Annotated[str, Field(min_length=1, max_length=60)] | None = None
    """Money for an hour of one device, as of ``orrery compare --price``."""

    @property
    def price_of_device(self) -> float | None:
        """Money for an hour of one device, None where it is not known.

        Raises:
            ConfigError: It is no number > 0.
        """
        from orrery.terminal.options import price_of

        return price_of(self.cluster_spec, [self.price]) if self.price else None

    @property
    def cluster_spec(self) -> str:
        """Cluster with its changes, as ``load_cluster`` takes it in the working folder."""
        spec = _file_of(self.cluster, "clusters")
        return cluster_with(spec, self.edits) if self.edits else spec

    @property
    def model_spec(self) -> str:
        """Model, as ``load_model`` takes it in the working folder."""
        return _file_of(self.model, "models")

    @property
    def files(self) -> list[str]:
        """Uploaded files that it names, in the working folder."""
        named = (("models", self.model), ("clusters", self.cluster))
        return [f"{folder}/{spec.split(':')[1]}.yaml" for folder, spec in named if spec.startswith(UPLOAD)]

    @property
    def command(self) -> str:
        """Command that makes the same comparison, typed in the working folder."""
        from shlex import join

        words = ["orrery", "compare", self.model_spec, "--cluster", self.cluster_spec, "--batch", str(self.batch)]
        words += ["--strategies", plan_list_text(self.strategies), "--out", "comparison"]
        words += ["--gradient-sync", self.gradient_sync] if self.gradient_sync else []
        words += ["--price", self.price] if self.price else []
        return join([*words, "--dtype", self.dtype] if self.dtype != "float32" else words)


def parsed_subject(values: object) -> BenchSubject:
    """Return the subject of a request or of a stored scenario.

    Raises:
        ConfigError: A field is missing, unknown, or breaks a rule.
    """
    try:
        subject = BenchSubject.model_validate(values)
    except ValidationError as error:
        raise ConfigError(f"request: {broken_rules(error)}") from None
    _check_name("model", subject.model, model_names(), _MODEL_PARAMETERS)
    _check_name("cluster", subject.cluster, cluster_names(), _CLUSTER_PARAMETERS)
    for name in subject.strategies:
        if read_plan_text(name)[0].endswith(SUFFIXES) or "/" in name or not name.isprintable():
            raise ConfigError(f"strategy must be a name or degrees such as data=4, got {name!r}")
        check_plan_text(name)
    for name, value in subject.edits.items():
        if not (_EDIT_NAME.fullmatch(name) and name.isprintable()) or not _EDIT_VALUE.fullmatch(value):
            raise ConfigError(f"change must look like link.CLASS.bandwidth_factor=number, got {f'{name}={value}'!r}")
        if name.endswith(".profile") and value.partition("@")[0] not in profile_names():
            raise ConfigError(f"{name} must be a compute profile of the catalogue, got {value!r}")
    _ = subject.price_of_device
    return subject


def _check_name(what: str, spec: str, known: list[str], parameters: re.Pattern[str]) -> None:
    """Refuse a name that is neither one of the catalogue nor that of an upload, and parameters that are no numbers."""
    name, colon, text = spec.removeprefix(UPLOAD).partition(":")
    if colon and not parameters.fullmatch(text):
        raise ConfigError(f"parameters of the {what} must look like name=number, got {text!r}")
    if spec.startswith(UPLOAD):
        if not FILE_NAME.fullmatch(name):
            raise ConfigError(f"{what} must be the name of an upload: letters, digits, _ and -, got {name!r}")
    elif name not in known:
        rule = "one of the catalogue or an upload; requests never name code or files"
        raise ConfigError(f"{what} must be {rule}, got {name!r}{did_you_mean(name, known)}")


def _file_of(spec: str, folder: str) -> str:
    """Return a specification whose upload is a file of the working folder."""
    if not spec.startswith(UPLOAD):
        return spec
    name, colon, text = spec.removeprefix(UPLOAD).partition(":")
    return f"{folder}/{name}.yaml{colon}{text}"


def loaded_graph(subject: BenchSubject) -> ComputationGraph:
    """Return the network with its batch.

    Raises:
        ConfigError: As for ``load_model``; or its file is a link.
    """
    _check_inside("models", subject.model, subject.model_spec)
    return load_model(subject.model_spec, batch=subject.batch, element_bytes=DTYPE_BYTES[subject.dtype])


def loaded_cluster(subject: BenchSubject) -> DeviceGraph:
    """Return the cluster with its changes.

    Raises:
        ConfigError: As for ``load_cluster``; or its file is a link, or a device names a compute profile that is a file.
        UnreachableError: No route joins two devices.
    """
    _check_inside("clusters", subject.cluster, subject.cluster_spec)
    cluster = load_cluster(subject.cluster_spec)
    check_profiles(cluster)
    return cluster


def _check_inside(kind: str, spec: str, file_spec: str) -> None:
    """Refuse an upload that leads out of the working folder, in which this process is."""
    if spec.startswith(UPLOAD):
        path_inside(Path.cwd(), kind, spec.removeprefix(UPLOAD).partition(":")[0], ".yaml")
        if ":" in file_spec and os.path.lexists(file_spec):  # such a file would be read instead
            raise ConfigError(f"{kind} must hold no file whose name has parameters, got {file_spec!r}")


def check_profiles(cluster: DeviceGraph) -> None:
    """Refuse compute profiles outside the catalogue: an uploaded cluster leads to no other file.

    Raises:
        ConfigError: A device names one.
    """
    known = profile_names()
    for name in dict.fromkeys(device.profile for device in cluster.devices.kinds):
        if name.partition("@")[0] not in known:
            raise ConfigError(f"compute profile must be one of the catalogue, got {name!r}{did_you_mean(name, known)}")
