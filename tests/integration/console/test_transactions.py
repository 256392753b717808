"""Transactions in the console: open and hanging ones, producers, and aborts."""

from collections.abc import Iterator

import pytest

import headrace
from headrace.console.server import ConsoleServer
from headrace.console.settings import ClusterSettings, ConsoleSettings
from headrace.testing import EmbeddedBroker
from tests.support.broker.transactional_producers import HangingTransaction
from tests.support.console.api_client import ApiClient
