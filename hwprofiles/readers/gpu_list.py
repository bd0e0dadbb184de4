"""Readers of the lists of GPUs that ``nvidia-smi -L`` and ``nvidia-smi -q -x`` print."""

import re
from xml.etree.ElementTree import Element

from groundwork.errors import ConfigError
from hwprofiles.readers.facts import Gpu, GpuList

GPU_LINE = re.compile(r"^GPU (\d+): (.+?)(?: \(UUID: .*\))?$", re.MULTILINE)
_MIB = 2**20


def gpus_of_lines(text: str, origin: str) -> GpuList:
    """Return the GPUs that ``nvidia-smi -L`` lists.

    Raises:
        ConfigError: Numbers of GPUs are missing.
    """
    found = [(int(number[:9]), model.strip()) for number, model in GPU_LINE.findall(text)]
    if [number for number, _ in found] != list(range(len(found))):
        raise ConfigError(f"{origin} must list GPU 0, 1, ... in order, got {[number for number, _ in found][:16]}")
    return GpuList(origin=origin, gpus=tuple(Gpu(model=model) for _, model in found))


def gpus_of_log(log: Element, origin: str) -> GpuList:
    """Return the GPUs of the XML that ``nvidia-smi -q -x`` writes.

    Raises:
        ConfigError: There is none.
    """
    gpus = []
    for gpu in log.findall("gpu"):
        memory = re.fullmatch(r"\s*(\d{1,9}) MiB\s*", gpu.findtext("fb_memory_usage/total") or "")
        bus = gpu.get("id", "")
        # A PCI address with a domain of four digits, as other programs write it.
        domain, _, rest = bus.lower().partition(":")
        gpus.append(
            Gpu(
                model=(gpu.findtext("product_name") or "").strip(),
                bus=f"{domain[-4:]}:{rest}" if rest else bus.lower(),
                memory_bytes=float(memory[1]) * _MIB if memory else None,
            )
        )
    if not gpus:
        raise ConfigError(f"{origin} shows no GPU")
    return GpuList(origin=origin, gpus=tuple(gpus))
