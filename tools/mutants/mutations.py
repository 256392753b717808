"""Finds the possible small changes of a Python module.

A mutation replaces one expression or statement. Its fingerprint depends on the changed statement and its function, not
on line numbers, so it stays the same if other code changes.

Not mutated, because a change there breaks nothing that a test should check: docstrings, annotations, log lines,
messages of errors, `assert`, `__repr__` and `__str__`, `__all__` and `__slots__`, and blocks for type checkers.
"""

import ast
import copy
import difflib
import hashlib
import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Mutation", "diff_of", "find_mutations"]

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
_SKIPPED_FUNCTIONS = ("__repr__", "__str__")
_SKIPPED_NAMES = ("__all__", "__slots__")
_DROPPED = (ast.Expr, ast.Assign, ast.AugAssign, ast.Delete, ast.Raise)


@dataclass(frozen=True)
class Mutation:
    """One change of a module. `path` is relative to `src/headrace`; `function` is empty at module and class level."""

    path: str
    function: str
    line: int
    kind: str
    before: str
    after: str
    fingerprint: str
    start: int
    end: int
    """The changed bytes of the module's source."""

    def apply(self, source: str) -> str:
        """Returns the module's source with the change."""
        encoded = source.encode()
        return (encoded[: self.start] + self.after.encode() + encoded[self.end :]).decode()


@dataclass(frozen=True)
class _Change:
    node: ast.expr | ast.stmt
    replacement: str
    kind: str


def find_mutations(path: str, source: str) -> list[Mutation]:
    """Returns all mutations of a module in the order of its lines."""
    lines = source.encode().splitlines(keepends=True)
    starts = list(itertools.accumulate(map(len, lines), initial=0))
    mutations: list[Mutation] = []
    seen: Counter[tuple[str, ...]] = Counter()
    for function, statement, change in _changes(ast.parse(source), "", is_class=False):
        node = change.node
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        before = _one_line(ast.unparse(node))
        key = (path, function, change.kind, _one_line(ast.unparse(statement)), before, change.replacement)
        seen[key] += 1
        fingerprint = hashlib.sha256("\0".join((*key, str(seen[key]))).encode()).hexdigest()[:10]
        start = starts[node.lineno - 1] + node.col_offset
        end = starts[node.end_lineno - 1] + node.end_col_offset
        mutations.append(
            Mutation(path, function, node.lineno, change.kind, before, change.replacement, fingerprint, start, end)
        )
    return mutations


def diff_of(mutation: Mutation, source: str) -> str:
    """Returns the mutation as a unified diff with two lines of context."""
    lines = difflib.unified_diff(
        source.splitlines(), mutation.apply(source).splitlines(), mutation.path, mutation.path, lineterm="", n=2
    )
    return "\n".join(list(lines)[2:])


def _one_line(text: str) -> str:
    return text if "\n" not in text else text.splitlines()[0] + " ..."


def _changes(
    parent: ast.AST, function: str, is_class: bool, scope: str = ""
) -> Iterator[tuple[str, ast.stmt, _Change]]:
    """Yields the changes of all statements in a body, with the qualified name of their function."""
    for statement in _statements(parent):
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            if statement.name in _SKIPPED_FUNCTIONS:
                continue
            name = scope + statement.name
            defaults = [*statement.args.defaults, *(each for each in statement.args.kw_defaults if each)]
            for default in defaults:
                yield from ((function, statement, change) for change in _expression_changes(default))
            yield from _changes(statement, name, is_class=False, scope=f"{name}.<locals>.")
        elif isinstance(statement, ast.ClassDef):
            name = scope + statement.name
            yield from _changes(statement, function, is_class=True, scope=f"{name}.")
        elif not _is_skipped(statement):
            yield from ((function, statement, change) for change in _statement_changes(statement, is_class))
            yield from _changes(statement, function, is_class, scope)


def _statements(parent: ast.AST) -> Iterator[ast.stmt]:
    """Yields the statements directly in the bodies of a statement."""
    for field in ("body", "handlers", "orelse", "finalbody", "cases"):
        for each in getattr(parent, field, None) or []:
            if isinstance(each, ast.stmt):
                yield each
            else:
                yield from each.body


def _is_skipped(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Assert | ast.Import | ast.ImportFrom):
        return True
    if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
        return True
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Constant) or _is_log_line(statement.value)
    if isinstance(statement, ast.Assign):
        return any(isinstance(target, ast.Name) and target.id in _SKIPPED_NAMES for target in statement.targets)
    return False


def _is_log_line(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func).lstrip("_").startswith("logger.")


def _statement_changes(statement: ast.stmt, is_class: bool) -> Iterator[_Change]:
    """Yields the changes of a statement and its own expressions, but not of its body."""
    if isinstance(statement, _DROPPED) and not is_class and _can_be_dropped(statement):
        yield _Change(statement, "pass", "dropped statement")
    if isinstance(statement, ast.Raise):
        return
    if isinstance(statement, ast.Break):
        yield _Change(statement, "continue", "break and continue")
    if isinstance(statement, ast.Continue):
        yield _Change(statement, "break", "break and continue")
    if isinstance(statement, ast.Return) and statement.value is not None and not _is_flag(statement.value):
        yield _Change(statement.value, "None", "returned value")
    if isinstance(statement, ast.AugAssign) and type(statement.op) in _OPERATORS:
        changed = copy.deepcopy(statement)
        changed.op = _OPERATORS[type(statement.op)]()
        yield _Change(statement, ast.unparse(changed), "operator")
    if isinstance(statement, ast.If | ast.While):
        yield from _negations(statement.test)
    for _field, value in ast.iter_fields(statement):
        for node in value if isinstance(value, list) else [value]:
            if isinstance(node, ast.expr) and node is not getattr(statement, "annotation", None):
                yield from _expression_changes(node)
            elif isinstance(node, ast.withitem):
                yield from _expression_changes(node.context_expr)


def _can_be_dropped(statement: ast.stmt) -> bool:
    """Returns True for statements with an effect outside of local variables. Without the assignment of a local
    variable, the function would only raise NameError."""
    if isinstance(statement, ast.Assign):
        return all(isinstance(target, ast.Attribute | ast.Subscript) for target in statement.targets)
    return True


def _is_flag(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, bool | None)


def _negations(test: ast.expr) -> Iterator[_Change]:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return  # the expression itself yields this change
    if not isinstance(test, ast.Compare):  # its operator is changed
        yield _Change(test, f"not ({ast.unparse(test)})", "negated condition")


def _expression_changes(root: ast.expr) -> Iterator[_Change]:
    """Yields the changes of an expression and its parts."""
    if isinstance(root, ast.JoinedStr) or _is_log_line(root):
        return
    changed: ast.expr = copy.deepcopy(root)
    match root, changed:
        case ast.Compare(), ast.Compare():
            for index, operator in enumerate(root.ops):
                changed.ops = [*root.ops[:index], _COMPARISONS[type(operator)](), *root.ops[index + 1 :]]
                yield _Change(root, ast.unparse(changed), "comparison")
        case ast.BoolOp(), ast.BoolOp():
            changed.op = ast.Or() if isinstance(root.op, ast.And) else ast.And()
            yield _Change(root, f"({ast.unparse(changed)})", "and and or")
        case ast.BinOp(), ast.BinOp() if type(root.op) in _OPERATORS and not _is_text(root):
            changed.op = _OPERATORS[type(root.op)]()
            yield _Change(root, f"({ast.unparse(changed)})", "operator")
        case ast.UnaryOp(op=ast.Not()), _:
            yield _Change(root, f"({ast.unparse(root.operand)})", "removed not")
        case ast.IfExp(), ast.IfExp():
            if not isinstance(root.test, ast.Compare):
                changed.test = ast.UnaryOp(ast.Not(), root.test)
                yield _Change(root, f"({ast.unparse(changed)})", "negated condition")
        case ast.Constant(value=bool()), _:
            yield _Change(root, str(not root.value), "constant")
        case ast.Constant(value=int()), _:
            assert isinstance(root.value, int)
            for value in (root.value + 1, root.value - 1):
                yield _Change(root, str(value) if value >= 0 else f"({value})", "constant")
        case ast.Call(func=ast.Name(id=name)), ast.Call() if name in _CALLS:
            changed.func = ast.Name(_CALLS[name])
            yield _Change(root, ast.unparse(changed), "min and max")
        case _:
            pass
    for child in ast.iter_child_nodes(root):
        if isinstance(child, ast.keyword):
            yield from _expression_changes(child.value)
        elif isinstance(child, ast.comprehension):
            for condition in child.ifs:
                yield from _negations(condition)
                yield from _expression_changes(condition)
            yield from _expression_changes(child.iter)
        elif isinstance(child, ast.expr):
            yield from _expression_changes(child)


def _is_text(node: ast.BinOp) -> bool:
    """Returns True for a sum of strings, or a formatted string."""
    return any(
        isinstance(each, ast.JoinedStr) or (isinstance(each, ast.Constant) and isinstance(each.value, str | bytes))
        for each in (node.left, node.right)
    )
