"""Runs the scenario with a version of Kafka's Java client."""

import json
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.support.apache_kafka.jvm import TOOL_JVM_ARGS, fetch_jars, require_java

SOURCE = Path(__file__).parents[1] / "java" / "ClientScenario.java"


def run_java_scenario(version: str, args: Sequence[str], seconds: float) -> dict[str, Any]:
    """Returns the report. Downloads the client and its codecs from Maven Central."""
    require_java()
    name = f"kafka-clients-{version}"
    home = fetch_jars(name, f"kafka-clients {version}", [("org.apache.kafka", "kafka-clients", version)])
    classpath = f"{home / 'libs'}{os.sep}*"
    # The JVM compiles the source in memory against this version.
    command = ["java", *TOOL_JVM_ARGS, "-cp", classpath, str(SOURCE), *args]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return {"version": version, **json.loads(done.stdout)}
