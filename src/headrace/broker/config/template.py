"""A commented `server.properties` with every broker config and its default: `headrace server --print-config`.

Only the configs in `values` are set. Every other line is commented out and shows the default, so that the file
works without changes and documents every config.
"""

import textwrap
from collections.abc import Iterable, Mapping

from headrace.broker.config.broker import BROKER_KEYS, OWN_KEYS
from headrace.common.config import ConfigKey
from headrace.storage.config import MANAGER_KEYS

_WIDTH = 100
_HEAD = """\
# Configuration of a Headrace broker. The names and defaults are Apache Kafka's.
# Start the broker with:  headrace server server.properties
"""


def config_template(values: Mapping[str, str]) -> str:
    """Returns the text of the file."""
    own_keys, manager_keys = OWN_KEYS.keys, MANAGER_KEYS.keys
    topic_default_keys = [
        key for name, key in BROKER_KEYS.keys.items() if name not in own_keys and name not in manager_keys
    ]
    sections = {
        "Broker, network and coordinators": own_keys.values(),
        "Log directories and log cleaner": manager_keys.values(),
        "Defaults for topics": topic_default_keys,
    }
    text = _HEAD + "".join(_section(title, keys, values) for title, keys in sections.items())
    without_effect = [f"{name}={value}\n" for name, value in values.items() if name not in BROKER_KEYS.keys]
    if without_effect:
        text += "\n# ---- Configs of Apache Kafka that have no effect here\n\n" + "".join(without_effect)
    return text


def _section(title: str, keys: Iterable[ConfigKey], values: Mapping[str, str]) -> str:
    return f"\n# ---- {title}\n" + "".join(_entry(key, values) for key in keys)


def _entry(key: ConfigKey, values: Mapping[str, str]) -> str:
    expected = key.expected()
    about = f"{key.doc} ({expected[0].upper()}{expected[1:]}{'; can be changed at run time' if key.dynamic else ''}.)"
    lines = textwrap.wrap(about, _WIDTH, initial_indent="# ", subsequent_indent="# ", break_on_hyphens=False)
    if key.name in values:
        lines.append(f"{key.name}={values[key.name]}")
    else:
        lines.append(f"#{key.name}={key.format(key.default) or ''}")
    return "\n" + "\n".join(lines) + "\n"
