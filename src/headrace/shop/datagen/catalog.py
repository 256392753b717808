"""The simulated shop: its items, its visitors' devices, and the lists of items that its pages display.

Built once, from a seed, before the first event. Most of an event's bytes are prepared here as JSON text: the fields of
a device, and lists of displayed items (`shelves`). An event only joins a few pieces, so one process generates tens of
thousands of events per second. As in real logs, events contain more than pipelines need.

Items and devices are skewed as in real shops:

- The item of rank r is chosen in proportion to 1/(r+5), so a twentieth of the items gets half of the attention.
- A quarter of the devices makes most of the visits.

Item and device ids do not depend on the seed: two runs simulate the same shop and the same customers.

Pure Python, no I/O.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Generic, TypeVar

from headrace.common.ids import Random

T = TypeVar("T")

ITEMS = 1000
SHELVES = 1500
"""The number of display lists for each kind of page, like the entries of a recommendation cache."""

_MATERIALS = ("walnut", "linen", "steel", "cotton", "glass", "wool", "bamboo", "cork", "brass", "leather")
_THINGS = ("lamp", "mug", "rug", "chair", "clock", "bag", "kettle", "shelf", "scarf", "bottle", "notebook", "pillow")
_AREAS = ("DE-BE", "DE-HH", "FR-75", "IT-25", "NL-NH", "PL-MZ", "AT-9", "ES-MD", "SE-AB", "CZ-10", "PT-11", "BE-BRU")
_CHANNELS = ("appstore", "playstore", "web", "partner", "preinstalled")
_SYSTEMS = ("Android 14", "Android 15", "Android 16", "iOS 18.2", "iOS 26.0")
_MODELS = (("Fennel", "F7"), ("Fennel", "F9 Pro"), ("Orbit", "Two"), ("Orbit", "Three"), ("Tern", "S"), ("Tern", "XL"))
_VERSIONS = ("v4.0.2", "v4.1.0", "v4.1.1", "v4.2.0")

SHELVES_OF: Mapping[str, tuple[str, int, int]] = {
    "home": ("activity", 7, 10),
    "search": ("query", 7, 10),
    "good_list": ("query", 7, 11),
    "good_detail": ("recommend", 5, 8),
    "cart": ("recommend", 4, 7),
    "payment_done": ("promotion", 6, 9),
}
"""Pages that display items: the display type, and the minimum and maximum number of items."""


@dataclass(frozen=True, slots=True)
class Item:
    """An item of the shop. Prices are in cents."""

    id: int
    name: str
    category: int
    price: int


class Device:
    """A phone or browser with the shop's app. `common` is the constant part of its events, as JSON text."""

    __slots__ = ("common", "is_known", "mid", "user_id")

    def __init__(self, mid: str, user_id: int, common: str, is_known: bool):
        self.mid = mid
        self.user_id = user_id
        self.common = common
        self.is_known = is_known
        """True if the device has visited the shop before."""


class Skewed(Generic[T]):
    """A sequence of values. `draw` prefers values near its beginning."""

    def __init__(self, values: Sequence[T], random: Random, flatness: float = 5.0):
        self.values = values
        self._random = random
        self._weights = list(accumulate(1 / (rank + flatness) for rank in range(len(values))))
        self._ready: list[T] = []

    def draw(self) -> T:
        if not self._ready:  # drawing many at once is several times cheaper
            self._ready = self._random.choices(self.values, cum_weights=self._weights, k=1000)
        return self._ready.pop()


class Catalog:
    """The items, devices and shelves of the shop."""

    def __init__(self, random: Random, devices: int):
        self.items = Skewed(_create_items(), random)
        self.devices = Skewed(_create_devices(devices), random, flatness=devices / 10)
        self.shelves = {page: self._create_shelves(random, *kind) for page, kind in SHELVES_OF.items()}
        """Lists of displays as JSON text, by the page that shows them."""

    def _create_shelves(self, random: Random, display_type: str, min_items: int, max_items: int) -> list[str]:
        shelves = []
        for _ in range(SHELVES):
            displays = [
                {
                    "display_type": display_type,
                    "item": str(self.items.draw().id),
                    "item_type": "sku_id",
                    "order": order,
                    "pos_id": random.randrange(1, 6),
                }
                for order in range(1, random.randint(min_items, max_items) + 1)
            ]
            shelves.append(json.dumps(displays, separators=(",", ":")))
        return shelves


def _create_items() -> list[Item]:
    """Creates the same items for every seed."""
    fixed = Random(20_260_101)
    return [
        Item(
            id=number,
            name=f"{fixed.choice(_MATERIALS)} {fixed.choice(_THINGS)} no. {number}",
            category=fixed.randrange(1, 41),
            price=max(199, round(fixed.lognormvariate(8.0, 0.8) / 10) * 10 - 1),
        )
        for number in range(1, ITEMS + 1)
    ]


def _create_devices(count: int) -> list[Device]:
    fixed = Random(20_260_102)
    devices = []
    for number in range(1, count + 1):
        brand, model = fixed.choice(_MODELS)
        common = {
            "mid": f"mid_{number:07d}",
            "uid": str(number) if fixed.random() < 0.8 else None,
            "vc": fixed.choice(_VERSIONS),
            "ch": fixed.choice(_CHANNELS),
            "os": fixed.choice(_SYSTEMS),
            "ar": fixed.choice(_AREAS),
            "md": f"{brand} {model}",
            "ba": brand,
            "ua": f"Mozilla/5.0 (Mobile; {model}; rv:140.0) AppleWebKit/605.1.15 (KHTML, like Gecko) Shop/4 {brand}",
            "net": fixed.choice(("wifi", "5g", "4g")),
        }
        text = json.dumps(common, separators=(",", ":"))[:-1]  # sid and is_new follow with each visit
        devices.append(Device(str(common["mid"]), number, text, is_known=fixed.random() < 0.6))
    return devices
