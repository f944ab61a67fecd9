"""Which metric names look like power, energy or tokens, and which labels look like a device.

This is about exporters that the catalogue does not know yet, so names and labels are guessed here by their words; what
is known is a row of the catalogues. Add a word when an exporter uses it. Keep out how a source is asked for its names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

# Bounds of what one landed day may list: names, those whose devices are looked at, and devices of each.
MOST_NAMES = 500
MOST_FAMILIES_WITH_DEVICES = 50
MOST_DEVICES = 200
NAME_CHARACTERS = 256
VALUE_CHARACTERS = 256

_UNITS = "(?:micro|milli|kilo|mega)?(?:watts?|joules?|watt(?:hours?|seconds?))|[kmg]?wh"
# Words between any characters that are no letters or digits, and humps of camelCase. Go's regexp (RE2) and Python read
# this pattern alike; it has to match a whole name.
NAME_PATTERN = (
    rf"(?i:(?:.*[^a-z0-9])?(?:power|wattage|energy|tokens?|{_UNITS})[0-9]*(?:[^a-z0-9].*)?)"
    "|(?:.*[a-z0-9])?(?:Power|Watt(?:age|s)?|Energy|Joules?|Tokens?)(?:[A-Z0-9].*)?"
    "|(?:.*[^a-zA-Z0-9])?(?:power|watt(?:age|s)?|energy|joules?|tokens?)[A-Z].*"
)
_NAME = re.compile(NAME_PATTERN, re.DOTALL)
# Parts of another family, which is listed itself.
_PARTS = ("_bucket", "_created")

_MEASURED = re.compile(f"power|wattage|energy|{_UNITS}")
# A name with one of these words holds a state, a limit or another unit, not what a device draws.
_NOT_DRAWN = re.compile(
    "state|status|on|off|cycles?|mode|profile|level|reasons?|enabled|supported|info|errors?|events?|count|limits?|cap"
    "|capping|threshold|max|maximum|min|minimum|default|enforced|rated|nominal|capacity|budget|factor|violation"
    "|throttl(?:e|ing)|brake|management|efficiency|price|cost|remaining|per|seconds|ratio|percent|utili[sz]ation"
    "|celsius|volts?|voltage|amps|amperes|hertz|hz|rpm|bytes|dbm"
)
# Whose power it is where the name has no word of an accelerator: parts of a host, and what else has a power.
_OTHER_THING = re.compile(
    "rapl|cpu|core|uncore|dram|memory|package|socket|psys|hwmon|ipmi|dcmi|ups|battery|psu|supply|fan|disk|drive|pdu"
    "|outlet|rack|chassis|smartctl|nvme|ethtool|network|wifi|optical|transceiver|laser|rx|tx|signal"
)
_ACCELERATOR = re.compile(r"x?gpus?|[nthxdi]pus?|accel(?:erators?)?|nvml|nvidia|dcgm|rocm|gaudi|habana(?:labs)?|neuron")

# Names of labels without their case, underscores and `exported_`.
_UUID = re.compile("(?:gpu|device|board|accelerator)?(?:uuid|serial(?:number)?)")
_INDICES = (
    *("gpu", "gpuid", "gpuindex", "gpunumber", "accelerator", "acceleratorid", "npu", "npuid", "tpu", "hpu", "xpu"),
    *("deviceid", "deviceindex", "card", "cardid", "cardindex", "minornumber", "index", "device", "dev"),
)
_PCI = re.compile("pci(?:bus)?(?:id|address)?|busid|bdf")
# In this order: an address is often that of the exporter's own pod.
_NODES = ("hostname", "nodename", "node", "kubernetesnode", "host", "instance")
_NO_IDENTITY = frozenset(("", "n/a", "[n/a]", "[not supported]", "unknown", "none", "null"))
# A device of another kind under the label `device`: disks, networks, sensors, batteries. One with a space is a model.
_OTHER_DEVICE = re.compile(
    r"(?:/dev/)?(?:sd|vd|xvd|nvme|dm-|md|loop|eth|en|wl|ib|br|bond|hwmon|thermal|bat|ac\d)", re.IGNORECASE
)
# As the catalogue's labels are read: a number under a label of UUIDs is an index.
_BARE_INDEX = re.compile(r"(?:/dev/)?(?:card|nvidia|gpu|accel)?([0-9]{1,3})")


class Device(NamedTuple):
    """A device by what its labels name: a UUID or serial number, or what is unique on its node alone: the number that
    the host gives it, the address on its PCI bus. None where no label has it."""

    device_uuid: str | None
    device_index: str | None
    pci_bus_id: str | None
    node: str | None


def is_listed(metric: str) -> bool:
    """Whether a name looks like power, energy or tokens, and is neither part of a histogram nor a recording rule.

    Recording rules are named level:metric:operation; their input is listed itself.
    """
    is_derived = metric.count(":") > 1 or metric.endswith(_PARTS)
    return len(metric) <= NAME_CHARACTERS and not is_derived and _NAME.fullmatch(metric) is not None


def is_drawn_power(metric: str) -> bool:
    """Whether a listed name looks like what a device draws: its power or energy; no limit, no state, no part of a host
    such as its processor, its disks or its network."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", metric)
    spaced = re.sub("watts?_seconds?", "wattseconds", spaced.lower())
    words = [word.rstrip("0123456789") for word in re.split("[^a-z0-9]+", spaced)]
    if not is_listed(metric) or not any(map(_MEASURED.fullmatch, words)):
        return False
    is_accelerator = any(map(_ACCELERATOR.fullmatch, words))
    return not any(map(_NOT_DRAWN.fullmatch, words)) and (is_accelerator or not any(map(_OTHER_THING.fullmatch, words)))


def device_of(labels: Mapping[str, str]) -> Device | None:
    """The device that labels name, None where they name none: a node alone is no device."""
    by_name = {
        re.sub("[^a-z]", "", label.lower().removeprefix("exported_")): value
        for label, value in labels.items()
        if value.lower() not in _NO_IDENTITY and len(value) <= VALUE_CHARACTERS
    }
    uuid = next((value for name, value in by_name.items() if _UUID.fullmatch(name)), None)
    numbers = (by_name[name] for name in _INDICES if name in by_name)
    index = next((one for one in numbers if " " not in one and not _OTHER_DEVICE.match(one)), None)
    if uuid is not None and _BARE_INDEX.fullmatch(uuid):
        uuid, index = None, index or uuid
    if uuid is None and index is not None and index.lower().startswith("gpu-"):
        uuid, index = index, None
    if index is not None and (number := _BARE_INDEX.fullmatch(index)):
        index = number[1]
    pci = next((value for name, value in by_name.items() if _PCI.fullmatch(name)), None)
    node = next((by_name[name] for name in _NODES if name in by_name), None)
    if uuid is None and index is None and pci is None:
        return None
    return Device(uuid, index, pci, None if node is None else node.partition(":")[0])
