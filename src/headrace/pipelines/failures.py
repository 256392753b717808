"""Why something failed, out of what Spark, its Python workers and the JVM make of an exception: in one line, and
whether it is worth another try. Pure.
"""

import re

_PYTHON_ERROR = re.compile(r"^(?:[\w.]+\.)?(\w+(?:Error|Exception|Interrupt)?): (.*)$")
_CONDITION = re.compile(r"^\[[A-Z0-9_.]+\]\s*")
_STATE = re.compile(r"\s*SQLSTATE: \w+(; line \d+ pos \d+;?)?")
_TRACEBACK = "Traceback (most recent call last)"
_CAUSED_BY_CLEANING_UP = ("UnboundLocalError",)
"""What PySpark raises when it stops a reader that could not be made: the exception before it is the cause."""
_CALL = "An error occurred while calling "
_MOST = 600
_SPARK = ("pyspark", "py4j")
_SLOW_WORKER = "Python worker failed to connect back"
_LASTING = ("AnalysisException", "ParseException")
_LASTING_IN_TASKS = ("ConfigError: ", "NotDeterministicError: ")


def describe_failure(error: BaseException) -> str:
    """What to tell the user of an exception. The innermost cause counts, whichever side of Spark it happened on."""
    text = str(error)
    if _TRACEBACK in text:
        found = _of_traceback(text)
        if found is not None:
            return _tidy(found)
    if not _of_spark(error):
        return _tidy(text) or type(error).__name__
    lines = [line.strip() for line in text.splitlines()]
    caused = [line.partition("Caused by: ")[2] for line in lines if line.startswith("Caused by: ")]
    own = [line.removeprefix(": ") for line in lines if line and not line.startswith(_CALL)]
    said = caused[-1] if caused else next(iter(own), "")
    return _tidy(_CONDITION.sub("", said)) or type(error).__name__


def retries_allowed(error: BaseException) -> int:
    """How often in a row a batch may fail like this and be tried again. What Spark tells may pass: a lost task, a
    broker that was away. What the pipeline's own code raised in the driver, a plan or an option that is wrong will
    not. Workers have ten seconds to come up, which a busy machine may exceed more than once."""
    text = str(error)
    if _SLOW_WORKER in text:
        return 3
    lasting = type(error).__name__ in _LASTING or any(name in text for name in _LASTING_IN_TASKS)
    return 1 if _of_spark(error) and not lasting else 0


def _of_spark(error: BaseException) -> bool:
    return type(error).__module__.partition(".")[0] in _SPARK


def _of_traceback(text: str) -> str | None:
    """What the last exception said, of the Python tracebacks in a text, up to the JVM's own lines."""
    for trace in reversed(text.split(_TRACEBACK)[1:]):
        lines = trace.splitlines()
        for position, line in enumerate(lines):
            found = None if line[:1].isspace() else _PYTHON_ERROR.match(line)
            if found is None:
                continue
            if found[1] in _CAUSED_BY_CLEANING_UP:
                break
            said = [found[2]]
            for more in lines[position + 1 :]:
                if not more.strip() or more.lstrip().startswith(("at ", "...", "===", "SQLSTATE")):
                    break
                said.append(more.strip())
            return " ".join(said)
    return None


def _tidy(text: str) -> str:
    text = " ".join(_STATE.sub("", text).split())
    return text if len(text) <= _MOST else f"{text[:_MOST]}..."
