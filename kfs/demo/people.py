"""The customers of the demo's shop, with names in several scripts."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Final

_FIRST_NAMES: Final = (
    *("Anna", "Bence", "Chloë", "David", "Émile", "Fatima", "Grzegorz", "Håkon", "İpek", "José", "Kateřina"),
    *("Łukasz", "María", "Nguyễn", "Olga", "Пётр", "小林", "李娜", "محمد", "Zoë"),
)
_LAST_NAMES: Final = (
    *("Smith", "García", "Müller", "Ōkubo", "Kowalski", "Nováková", "Иванов", "Lee", "佐藤", "Brown"),
    *("Dvořák", "Åberg", "Costa", "Silva", "O'Neill", "Rossi"),
)
_CITIES: Final = (
    *(("Budapest", "HU"), ("São Paulo", "BR"), ("Zürich", "CH"), ("東京", "JP"), ("Kraków", "PL"), ("Berlin", "DE")),
    *(("Wien", "AT"), ("Αθήνα", "GR"), ("Oslo", "NO"), ("Lyon", "FR"), ("Київ", "UA"), ("القاهرة", "EG")),
)
CUSTOMERS: Final = 300


@dataclass(frozen=True, slots=True)
class Customer:
    """A customer; the same number always gives the same customer."""

    customer_id: str
    name: str
    city: str
    country: str


def customer(number: int) -> Customer:
    """Return the customer with the given number, from 0 up to, not including, :data:`CUSTOMERS`."""
    source = random.Random(f"customer {number}")
    city, country = source.choice(_CITIES)
    name = f"{source.choice(_FIRST_NAMES)} {source.choice(_LAST_NAMES)}"
    return Customer(f"c-{number:05d}", name, city, country)


def any_customer(source: random.Random) -> Customer:
    """Return a random customer; low numbers are more frequent."""
    return customer(int(source.random() ** 2 * CUSTOMERS))
