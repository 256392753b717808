"""What every shell tool is: a command that says what went wrong in one line, and ends with a code that scripts can use.

0  done        1  failed, or a command line that makes no sense (as Kafka's tools have it)        130  Ctrl-C
143  SIGTERM, after which groups are left and totals shown as after Ctrl-C
"""

import logging
import os
import re
import signal
import sys
import threading
from typing import Any, NoReturn

import click

from headrace import __version__
from headrace.common.errors import HeadraceError

USAGE_CODE = 1
INT_MAX, LONG_MAX = (1 << 31) - 1, (1 << 63) - 1


class Failure(click.ClickException):
    """What a tool could not do. The message is a sentence for the user."""

    exit_code = 1


class _OneLine(logging.Formatter):
    """What clients have to say in a log, without tracebacks."""

    def format(self, record: logging.LogRecord) -> str:
        text = " ".join(record.getMessage().split())
        error = record.exc_info[1] if record.exc_info else None
        return f"{record.levelname}: {text}" + (f": {sentence(error)}" if error is not None else "")


def _log_in_lines() -> None:
    root = logging.getLogger()
    if not root.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(_OneLine())
        handler.setLevel(logging.WARNING)
        root.addHandler(handler)
        logging.getLogger("asyncio").setLevel(logging.CRITICAL)  # its talk is of tasks, not of the user's work


class Terminated(KeyboardInterrupt):
    """SIGTERM, as `timeout` and `kill` send it: the same end as after Ctrl-C, with another code."""


class Interrupts:
    """Ctrl-C and SIGTERM, which a tool may hold back for a moment while it does two things that belong together.

    Between `hold` and `release` nothing may wait: a second Ctrl-C raises all the same.
    """

    def __init__(self) -> None:
        self._is_held = False
        self._held_back: type[KeyboardInterrupt] | None = None

    def hold(self) -> None:
        self._is_held = True

    def release(self) -> None:
        """Raises the interrupt that was held back, if any."""
        self._is_held = False
        held_back, self._held_back = self._held_back, None
        if held_back is not None:
            raise held_back

    def install(self) -> None:
        """Lets a tool leave its group and show its totals when it is told to end."""
        if threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
            signal.signal(signal.SIGTERM, self._handle)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._handle)

    def _handle(self, number: int, _frame: object) -> None:
        kind = KeyboardInterrupt
        if number == signal.SIGTERM:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # `timeout` sends it twice
            kind = Terminated
        if self._is_held and self._held_back is None:
            self._held_back = kind
        else:
            raise kind


interrupts = Interrupts()


class _Kafka(click.Command):
    """A command named as one of Kafka's: its exit codes are theirs, and no error is a traceback."""

    def __init__(self, *args: Any, **extra: Any):
        super().__init__(*args, **extra)
        click.version_option(__version__, message="%(version)s", help="Show the version and exit.")(self)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.UsageError as error:
            _exit_as_kafka(error)
            raise

    def invoke(self, ctx: click.Context) -> Any:
        _log_in_lines()
        interrupts.install()
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            _exit_as_kafka(error)
            error.ctx = error.ctx or ctx
            raise
        except Failure as error:
            raise _named(error, ctx) from None
        except BrokenPipeError:
            nobody_listens()
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except (HeadraceError, OSError) as error:
            raise _named(Failure(sentence(error)), ctx) from error
        except Exception as error:  # a mistake of ours, or of a formatter that the user wrote
            if "HEADRACE_TRACEBACK" in os.environ:
                raise
            text = f"{type(error).__name__}: {sentence(error)} (HEADRACE_TRACEBACK=1 shows where)"
            for given in ctx.params.values():
                if isinstance(given, str) and not _is_text(given):
                    text = f"{given!r} is not text in UTF-8"
            raise _named(Failure(text), ctx) from error


class Tool(_Kafka):
    pass


class ToolGroup(_Kafka, click.Group):
    """A tool that has commands of its own."""


def _exit_as_kafka(error: click.UsageError) -> None:
    error.__dict__["exit_code"] = USAGE_CODE


def _named(failure: Failure, ctx: click.Context) -> Failure:
    failure.__dict__.setdefault("command_path", ctx.command_path)
    return failure


def _is_text(given: str) -> bool:
    """Not so for bytes of a command line that are no UTF-8, or are none in the locale."""
    try:
        given.encode()
    except UnicodeEncodeError:
        return False
    return True


def sentence(error: BaseException) -> str:
    """What an error says, in one line."""
    return " ".join(str(error).split()) or type(error).__name__


def exit_with(error: click.ClickException) -> NoReturn:
    """Ends the process with what a command has to say about its failure."""
    path = error.__dict__.get("command_path", "headrace")
    hint = ""
    if isinstance(error, click.UsageError) and error.ctx is not None:
        path = error.ctx.command_path
        hint = f" (see {path} --help)"
    message = " ".join(error.format_message().split())
    click.echo(f"{path}: {message}{hint}", err=True)
    sys.exit(error.exit_code)


def nobody_listens() -> NoReturn:
    """The reader of our output has gone (`| head`): end as other programs do, without a word."""
    with open(os.devnull, "w") as nowhere:  # or Python would try to write again at exit
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
    sys.exit(141)


def read_file(path: str) -> bytes:
    """What is in a file, a pipe too (`<(echo ...)`)."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise click.UsageError(f"cannot read {path}: {reason}") from None


def exactly_one(given: dict[str, bool], what: str) -> str:
    """The name of the one flag that is set; an error names all of them otherwise."""
    chosen = [flag for flag, is_set in given.items() if is_set]
    if len(chosen) == 1:
        return chosen[0]
    flags = ", ".join(given)
    said = f"got {' and '.join(chosen)}" if chosen else "got none"
    raise click.UsageError(f"expected exactly one {what} of {flags}; {said}")


def only_with(flag: str, is_set: bool, allowed: bool, where: str) -> None:
    """Refuses a flag that does nothing here."""
    if is_set and not allowed:
        raise click.UsageError(f"{flag} goes only with {where}")


def check_expression(flag: str, text: str) -> None:
    """Refuses what is no regular expression."""
    try:
        re.compile(text)
    except re.error as error:
        raise click.UsageError(f"{flag} {text!r} is not a regular expression: {error}") from None
