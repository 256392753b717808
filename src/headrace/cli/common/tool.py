"""The base of every shell tool: errors in one line, and exit codes that scripts can use.

0    success
1    failure, or a wrong command line, as in Kafka's tools
130  Ctrl-C
143  SIGTERM

After Ctrl-C or SIGTERM, a tool leaves its consumer group and prints totals before it exits.
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
from headrace.cli.common.hints import flag_hint
from headrace.common.errors import HeadraceError

USAGE_CODE = 1
INT_MAX, LONG_MAX = (1 << 31) - 1, (1 << 63) - 1


class Failure(click.ClickException):
    """A tool failed. The message is a sentence for the user."""

    exit_code = 1


class _OneLineFormatter(logging.Formatter):
    """Formats the clients' log records in one line, without tracebacks."""

    def format(self, record: logging.LogRecord) -> str:
        text = " ".join(record.getMessage().split())
        error = record.exc_info[1] if record.exc_info else None
        return f"{record.levelname}: {text}" + (f": {sentence(error)}" if error is not None else "")


def _log_in_lines() -> None:
    root = logging.getLogger()
    if not root.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(_OneLineFormatter())
        handler.setLevel(logging.WARNING)
        root.addHandler(handler)
        logging.getLogger("asyncio").setLevel(
            logging.CRITICAL
        )  # its messages are about tasks, not about the user's work


class Terminated(KeyboardInterrupt):
    """SIGTERM, as `timeout` and `kill` send it. Handled like Ctrl-C, with another exit code."""


class Interrupts:
    """Handles Ctrl-C and SIGTERM. A tool can defer them briefly while it does two things that belong together.

    Code between `hold` and `release` must not block. A second Ctrl-C raises at once.
    """

    def __init__(self) -> None:
        self._is_held = False
        self._deferred: type[KeyboardInterrupt] | None = None

    def hold(self) -> None:
        self._is_held = True

    def release(self) -> None:
        """Raises the deferred interrupt, if any."""
        self._is_held = False
        deferred, self._deferred = self._deferred, None
        if deferred is not None:
            raise deferred

    def install(self) -> None:
        """Installs the signal handlers, so that a tool leaves its group and prints its totals before it exits."""
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
        if self._is_held and self._deferred is None:
            self._deferred = kind
        else:
            raise kind


interrupts = Interrupts()


class _KafkaCommand(click.Command):
    """A command with the exit codes of Kafka's tools that prints errors without tracebacks."""

    def __init__(self, *args: Any, **extra: Any):
        super().__init__(*args, **extra)
        click.version_option(__version__, message="%(version)s", help="Show the version and exit.")(self)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        try:
            return super().make_context(info_name, args, parent, **extra)
        except click.NoSuchOption as error:
            flags = [flag for param in self.params for flag in param.opts]
            message = f"No such option {error.option_name}{flag_hint(error.option_name, flags)}"
            usage_error = click.UsageError(message, error.ctx)
            _set_kafka_exit_code(usage_error)
            raise usage_error from None
        except click.UsageError as error:
            _set_kafka_exit_code(error)
            raise

    logs_in_lines = True
    """Print warnings of the clients in one line each. False for a service that sets up its log itself."""

    def invoke(self, ctx: click.Context) -> Any:
        if self.logs_in_lines:
            _log_in_lines()
        interrupts.install()
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            _set_kafka_exit_code(error)
            error.ctx = error.ctx or ctx
            raise
        except Failure as error:
            raise _with_command_path(error, ctx) from None
        except BrokenPipeError:
            exit_on_broken_pipe()
        except (click.ClickException, click.exceptions.Exit, click.Abort):
            raise
        except (HeadraceError, OSError) as error:
            raise _with_command_path(Failure(sentence(error)), ctx) from error
        except Exception as error:  # a bug in Headrace, or in a formatter that the user wrote
            if "HEADRACE_TRACEBACK" in os.environ:
                raise
            text = f"{type(error).__name__}: {sentence(error)} (set HEADRACE_TRACEBACK=1 to see the traceback)"
            for value in ctx.params.values():
                if isinstance(value, str) and not _is_text(value):
                    text = f"{value!r} is not valid UTF-8"
            raise _with_command_path(Failure(text), ctx) from error


class Tool(_KafkaCommand):
    """A tool without subcommands."""


class ToolGroup(_KafkaCommand, click.Group):
    """A tool with subcommands."""


def _set_kafka_exit_code(error: click.UsageError) -> None:
    error.__dict__["exit_code"] = USAGE_CODE


def _with_command_path(failure: Failure, ctx: click.Context) -> Failure:
    failure.__dict__.setdefault("command_path", ctx.command_path)
    return failure


def _is_text(text: str) -> bool:
    """Returns False for command-line bytes that are not valid in UTF-8 or in the locale."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def sentence(error: BaseException) -> str:
    """Returns an error's message in one line."""
    return " ".join(str(error).split()) or type(error).__name__


def exit_with(error: click.ClickException) -> NoReturn:
    """Prints a command's error and exits with its code."""
    path = error.__dict__.get("command_path", "headrace")
    hint = ""
    if isinstance(error, click.UsageError) and error.ctx is not None:
        path = error.ctx.command_path
        hint = f" (see {path} --help)"
    message = " ".join(error.format_message().split())
    click.echo(f"{path}: {message}{hint}", err=True)
    sys.exit(error.exit_code)


def exit_on_broken_pipe() -> NoReturn:
    """Exits silently, like other programs, when the reader of the output has exited (`| head`)."""
    with open(os.devnull, "w") as nowhere:  # otherwise Python writes again at exit
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
    sys.exit(141)


def read_file(path: str) -> bytes:
    """Reads a file or a pipe (`<(echo ...)`)."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise click.UsageError(f"Cannot read {path}: {reason}") from None


def exactly_one(flags_set: dict[str, bool], what: str) -> str:
    """Returns the only flag that is set. Raises a usage error that names all flags otherwise."""
    set_flags = [flag for flag, is_set in flags_set.items() if is_set]
    if len(set_flags) == 1:
        return set_flags[0]
    all_flags = ", ".join(flags_set)
    actual = f"got {' and '.join(set_flags)}" if set_flags else "got none"
    raise click.UsageError(f"Expected exactly one {what} of {all_flags}; {actual}")


def only_with(flag: str, is_set: bool, allowed: bool, where: str) -> None:
    """Raises a usage error if a flag is set that has no meaning for this action."""
    if is_set and not allowed:
        raise click.UsageError(f"{flag} is only allowed with {where}")


def check_expression(flag: str, text: str) -> None:
    """Raises a usage error if the text is not a regular expression."""
    try:
        re.compile(text)
    except re.error as error:
        raise click.UsageError(f"{flag} {text!r} is not a regular expression: {error}") from None
