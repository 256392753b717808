"""Visits to the shop: a device's path from page to page, and the changes in the shop's database that it causes.

A visit is a generator of events: the app starts, one page follows another, items go into the cart and are ordered and
paid. Events after the visit (shipping, refunds) come from `Order.after_sale`. The consumer of the generator decides
when an event happens: `Shop.now_ms` is the time of the event being generated.

An event is a tuple (topic, key, value): LOG or DB, and JSON text without whitespace.

Pure Python, no I/O. A shop belongs to one thread.
"""

from collections import deque
from collections.abc import Generator, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from headrace.common.ids import Random
from headrace.shop.datagen.catalog import Catalog, Device, Item

LOG: Final = 0
DB: Final = 1

Event = tuple[int, str, str]
"""Topic, key, value."""

ERROR_SHARE = 0.005
"""The share of page events with an error."""
REINSTALL_SHARE = 0.03
"""The share of visits whose app wrongly claims a new visitor, because it was reinstalled."""
REFUND_SHARE = 0.06
PRICE_CHANGES = 0.02
"""The number of price changes per order."""

# The next page of visitors, in percent; the rest up to 100 leaves the shop.
_NEXT_PAGES: dict[str, tuple[tuple[str, int], ...]] = {
    "home": (("search", 25), ("good_list", 45), ("good_detail", 22)),
    "search": (("good_list", 60), ("good_detail", 28)),
    "good_list": (("good_detail", 80), ("home", 8)),
    "good_detail": (("good_detail", 30), ("cart", 20), ("good_list", 28), ("home", 5)),
    "cart": (("trade", 45), ("good_list", 15), ("home", 10)),
    "payment_done": (("home", 30), ("mine", 15)),
    "mine": (("home", 30), ("good_list", 20)),
}
NEXT_PAGE: dict[str, list[str | None]] = {
    page: [name for name, percent in ways for _ in range(percent)]
    + [None] * (100 - sum(percent for _, percent in ways))
    for page, ways in _NEXT_PAGES.items()
}
"""A hundred equally likely next pages for each page; None ends the visit."""


class Shop:
    """The state that all visits share: time, ids and the catalog. `run` makes the ids of this run unique."""

    def __init__(self, random: Random, catalog: Catalog, run: str, first_row: int):
        self.random = random
        self.catalog = catalog
        self.now_ms = 0
        self.log_ms = 0
        """The timestamp of the app's next event: before `now_ms` if the device was offline until now."""
        self.after_sales: deque[Iterator[Event]] = deque()
        """The remaining events of earlier orders."""
        self._run = run
        self._serial = 0
        self._row = first_row
        self._xid = first_row

    def event_id(self) -> str:
        self._serial += 1
        return f"{self._run}-{self._serial:09d}"

    def row_id(self) -> int:
        """Returns a new primary key."""
        self._row += 1
        return self._row

    def transaction(self) -> int:
        """Returns the number of a new database transaction."""
        self._xid += 1
        return self._xid

    def row_change(self, table: str, kind: str, row: int, xid: int, data: str, old: str = "") -> Event:
        """Returns a change event: the row after the change (before it, if deleted), and the values that an update
        replaced."""
        old_member = f',"old":{{{old}}}' if old else ""
        value = (
            f'{{"event_id":"{self.event_id()}","database":"shop","table":"{table}","type":"{kind}","ts":{self.now_ms},'
            f'"xid":{xid},"data":{{"id":{row},{data}}}{old_member}}}'
        )
        return DB, f"{table}:{row}", value


class Visit:
    """One visit of a device. `events` yields it from the start of the app to the end."""

    def __init__(self, shop: Shop, device: Device):
        self.shop = shop
        self.device = device
        claims_to_be_new = not device.is_known or shop.random.random() < REINSTALL_SHARE
        device.is_known = True
        self.common = f'{device.common},"sid":"{shop.event_id()}","is_new":"{int(claims_to_be_new)}"}}'
        self._entry = ("search_engine", "newsletter", "direct", "social_media")[int(shop.random.random() * 4)]
        self.last_page = "null"
        self.cart: list[tuple[int, Item, int]] = []
        """Rows of the cart: primary key, item, quantity."""

    def events(self) -> Iterator[Event]:
        random = self.shop.random.random
        yield self._start()
        page: str | None = "home" if random() < 0.8 else "good_detail"
        while page is not None:
            if page == "good_detail":
                yield from self._look_at(self.shop.catalog.items.draw())
            elif page == "trade":
                if not self.cart:
                    page = "good_list"
                    continue
                page = yield from self._order()
                continue
            else:
                yield self._page(page)
            page = NEXT_PAGE[page][int(random() * 100)]

    # ---- events of the app

    def _start(self) -> Event:
        shop = self.shop
        random = shop.random.random
        ad_ms = int(random() * 5000)
        value = (
            f'{{"event_id":"{shop.event_id()}","ts":{shop.log_ms},"common":{self.common},"start":{{'
            f'"entry":"{"icon" if random() < 0.8 else "notice"}","loading_time":{300 + int(random() * 2000)},'
            f'"open_ad_id":{1 + int(random() * 20)},"open_ad_ms":{ad_ms},"open_ad_skip_ms":{ad_ms // 2}}}}}'
        )
        return LOG, self.device.mid, value

    def _page(self, page: str, item: int | None = None, source: str | None = None, actions: str = "") -> Event:
        shop = self.shop
        random = shop.random.random
        url = f"https://shop.example/{page}?ref={self._entry}"
        about = f'"item":"{item}","item_type":"sku_id"' if item is not None else '"item":null,"item_type":null'
        came_by = f'"{source}"' if source is not None else "null"
        shelves = shop.catalog.shelves.get(page)
        displays = f',"displays":{shelves[int(random() * len(shelves))]}' if shelves else ""
        error = ""
        if random() < ERROR_SHARE:
            code = 1000 + int(random() * 40)
            error = f',"err":{{"error_code":{code},"msg":"request failed with code {code}, tried again"}}'
        value = (
            f'{{"event_id":"{shop.event_id()}","ts":{shop.log_ms},"common":{self.common},"page":{{"page_id":"{page}",'
            f'"last_page_id":{self.last_page},"during_time":{800 + int(random() * 18000)},{about},'
            f'"source_type":{came_by},"url":"{url}"}}{displays}{actions}{error}}}'
        )
        self.last_page = f'"{page}"'
        return LOG, self.device.mid, value

    def _action(self, action: str, item: int) -> str:
        return f'{{"action_id":"{action}","item":"{item}","item_type":"sku_id","ts":{self.shop.log_ms}}}'

    # ---- steps of a visitor

    def _look_at(self, item: Item) -> Iterator[Event]:
        random = self.shop.random.random
        puts_in_cart = random() < 0.3
        actions = [self._action("get_coupon", item.id)] if random() < 0.1 else []
        if random() < 0.2:
            actions.append(self._action("favor_add", item.id))
        if puts_in_cart:
            actions.append(self._action("cart_add", item.id))
        source = ("recommend", "query", "activity", "promotion")[int(random() * 4)]
        yield self._page("good_detail", item.id, source, f',"actions":[{",".join(actions)}]' if actions else "")
        if puts_in_cart:
            shop = self.shop
            row, count = shop.row_id(), 1 + int(random() * 1.3)
            self.cart.append((row, item, count))
            yield shop.row_change("cart_info", "insert", row, shop.transaction(), self._cart_row(item, count))
            if count > 1:  # the visitor adds one more
                data, old = self._cart_row(item, count + 1), f'"sku_num":{count}'
                self.cart[-1] = (row, item, count + 1)
                yield shop.row_change("cart_info", "update", row, shop.transaction(), data, old)

    def _cart_row(self, item: Item, count: int) -> str:
        return (
            f'"user_id":{self.device.user_id},"sku_id":{item.id},"sku_name":"{item.name}",'
            f'"cart_price":{money(item.price)},"sku_num":{count}'
        )

    def _order(self) -> Generator[Event, None, str | None]:
        """Orders the content of the cart. Returns the next page, if any."""
        shop = self.shop
        random = shop.random.random
        yield self._page("trade")
        bought, self.cart = self.cart, []
        total = sum(item.price * count for _, item, count in bought)
        order, xid = Order(shop, self.device, total, bought), shop.transaction()
        yield order.insert(xid)
        for row, item, count in bought:
            yield shop.row_change("cart_info", "delete", row, xid, self._cart_row(item, count))
        if random() < PRICE_CHANGES:
            yield change_price(shop)
        if random() < 0.12:  # does not pay
            shop.after_sales.append(order.cancelled())
            return "home" if random() < 0.3 else None
        yield self._page("payment")
        xid = shop.transaction()
        yield order.payment(xid)
        yield order.update("paid", xid)
        shop.after_sales.append(order.after_sale())
        yield self._page("payment_done")
        return NEXT_PAGE["payment_done"][int(random() * 100)]


class Order:
    """An order and its rows in the database."""

    def __init__(self, shop: Shop, device: Device, total: int, bought: list[tuple[int, Item, int]]):
        self.shop = shop
        self.id = shop.row_id()
        self.total = total
        self.status = "created"
        area = device.common.partition('"ar":"')[2].partition('"')[0]
        self._constant = (
            f'"user_id":{device.user_id},"mid":"{device.mid}","total_amount":{money(total)},"sku_count":{len(bought)},'
            f'"area":"{area}","consignee":"Customer {device.user_id}",'
            f'"delivery_address":"{device.user_id % 90} Mill Lane, {area}",'
            f'"order_comment":"please ring twice, and leave it with the neighbours if nobody is in",'
            f'"create_time":"{moment(shop.now_ms)}"'
        )

    def insert(self, xid: int) -> Event:
        return self.shop.row_change("order_info", "insert", self.id, xid, self._row())

    def update(self, status: str, xid: int) -> Event:
        old = f'"order_status":"{self.status}"'
        self.status = status
        return self.shop.row_change("order_info", "update", self.id, xid, self._row(), old)

    def _row(self) -> str:
        return f'{self._constant},"order_status":"{self.status}","operate_time":"{moment(self.shop.now_ms)}"'

    def payment(self, xid: int) -> Event:
        shop = self.shop
        kind = ("card", "wallet", "transfer")[int(shop.random.random() * 3)]
        data = (
            f'"order_id":{self.id},{self._user()},"payment_type":"{kind}","payment_amount":{money(self.total)},'
            f'"payment_status":"succeeded","callback_time":"{moment(shop.now_ms)}"'
        )
        return shop.row_change("payment_info", "insert", shop.row_id(), xid, data)

    def cancelled(self) -> Iterator[Event]:
        yield self.update("cancelled", self.shop.transaction())

    def after_sale(self) -> Iterator[Event]:
        """Yields the events of shipping, and sometimes of a refund."""
        shop = self.shop
        yield self.update("shipped", shop.transaction())
        yield self.update("delivered", shop.transaction())
        if shop.random.random() < REFUND_SHARE:
            xid, row = shop.transaction(), shop.row_id()
            data = (
                f'"order_id":{self.id},{self._user()},"refund_amount":{money(self.total)},'
                f'"refund_reason":"did not fit","refund_status":"granted","create_time":"{moment(shop.now_ms)}"'
            )
            yield shop.row_change("refund_info", "insert", row, xid, data)
            yield self.update("refunded", xid)

    def _user(self) -> str:
        return self._constant.partition(",")[0]


def change_price(shop: Shop) -> Event:
    """Returns a change of a table without a route."""
    item = shop.catalog.items.draw()
    price = round(item.price * (0.9 + 0.2 * shop.random.random()))
    data = f'"sku_name":"{item.name}","category_id":{item.category},"price":{money(price)}'
    return shop.row_change("sku_info", "update", item.id, shop.transaction(), data, f'"price":{money(item.price)}')


def money(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02d}"


@lru_cache(maxsize=16)
def _second(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}"


def moment(time_ms: int) -> str:
    """Returns a time in the format of the database."""
    return _second(time_ms // 1000)
