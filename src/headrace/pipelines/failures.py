"""Turns the exceptions of Spark, its Python workers and the JVM into one line for the user, and decides which are
retried. Pure.
"""

import re

_PYTHON_ERROR = re.compile(r"^(?:[\w.]+\.)?(\w+(?:Error|Exception|Interrupt)?): (.*)$")
_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w+(; line \d+ pos \d+;?)?")
_TRACEBACK = "Traceback (most recent call last)"
_CLEANUP_ERRORS = ("UnboundLocalError",)
"""PySpark raises these when it stops a reader that could not be created. The exception before it is the cause."""
_PY4J_PREFIX = "An error occurred while calling "
_MAX_CHARS = 600
_SPARK_MODULES = ("pyspark", "py4j")
_SLOW_WORKER = "Python worker failed to connect back"
_SLOW_WORKER_RETRIES = 5
_PERMANENT = ("AnalysisException", "ParseException")
_PERMANENT_IN_TASKS = ("ConfigError: ", "NotDeterministicError: ", "TransformError: ", "StateFileError: ")


def describe_failure(error: BaseException) -> str:
    """Returns one line about an exception for the user: the message of its innermost cause, in Python or in the JVM."""
    text = str(error)
    if _TRACEBACK in text:
        message = _message_of_traceback(text)
        if message is not None:
            return _shorten(message)
    if not _is_from_spark(error):
        return _shorten(text) or type(error).__name__
    lines = [line.strip() for line in text.splitlines()]
    causes = [line.partition("Caused by: ")[2] for line in lines if line.startswith("Caused by: ")]
    messages = [line.removeprefix(": ") for line in lines if line and not line.startswith(_PY4J_PREFIX)]
    message = causes[-1] if causes else next(iter(messages), "")
    return _shorten(_CONDITION.sub("", message)) or type(error).__name__


def retries_allowed(error: BaseException) -> int:
    """Returns the maximum number of consecutive retries of a batch after this error.

    - Errors from Spark may be temporary: a lost task, an unavailable broker.
    - Errors of the pipeline's own code (in the driver, or in the transformation of an Arrow flow), invalid plans,
      invalid options and damaged state files are permanent.
    - Spark's workers must start within ten seconds. A busy machine may miss this limit more than once.
    """
    text = str(error)
    if _SLOW_WORKER in text:
        return _SLOW_WORKER_RETRIES
    is_permanent = type(error).__name__ in _PERMANENT or any(name in text for name in _PERMANENT_IN_TASKS)
    return 1 if _is_from_spark(error) and not is_permanent else 0


def _is_from_spark(error: BaseException) -> bool:
    return type(error).__module__.partition(".")[0] in _SPARK_MODULES


def _message_of_traceback(text: str) -> str | None:
    """Returns the message of the last exception of the Python tracebacks in a text, without the JVM's lines."""
    for trace in reversed(text.split(_TRACEBACK)[1:]):
        lines = trace.splitlines()
        for position, line in enumerate(lines):
            match = None if line[:1].isspace() else _PYTHON_ERROR.match(line)
            if match is None:
                continue
            if match[1] in _CLEANUP_ERRORS:
                break
            message = [match[2]]
            for following in lines[position + 1 :]:
                if not following.strip() or following.lstrip().startswith(("at ", "...", "===", "SQLSTATE")):
                    break
                message.append(following.strip())
            return " ".join(message)
    return None


def _shorten(text: str) -> str:
    text = " ".join(_SQLSTATE.sub("", text).split())
    return text if len(text) <= _MAX_CHARS else f"{text[:_MAX_CHARS]}..."
