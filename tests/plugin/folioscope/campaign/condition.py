# SPDX-License-Identifier: GPL-2.0-only
"""Conditions on a verdict: ``rule("C1") or coverage < 0.9``. Parsed by Python's grammar and walked here; nothing of it
is executed. What was not judged makes an answer unknown where it could change it."""

from __future__ import annotations

import ast
import difflib
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .errors import Refused


class _Unknown:
    """A value that the verdict does not give."""

    def __repr__(self) -> str:
        return "unknown"


UNKNOWN = _Unknown()


@dataclass(frozen=True)
class AtLeast:
    """A count of a verdict that is not whole: more may be found."""

    count: float


@dataclass(frozen=True)
class Counts:
    """Counts by name or number: one that is absent is 0, or unknown where ``unknown`` says so."""

    found: Mapping[Any, float]
    #: The names that there are; any number where there are none.
    names: tuple[str, ...] = ()
    what: str = "order"
    #: What was found is the least that there is.
    is_least: bool = False
    unknown: Callable[[Any], bool] = field(default=lambda _: False)

    def get(self, key: Any) -> Any:
        """The count of a name."""
        count = self.found.get(key, 0)
        if not count and self.unknown(key):
            return UNKNOWN
        return AtLeast(count) if self.is_least else count


#: What an expression may name, and how that is said where a name is not known.
NAMES = {
    "status": "exit status of the test",
    "outcome": '"pass", "fail" or "unjudged"',
    "errors": "places where a rule is broken",
    "not_judged": "parts that could not be judged",
    "rules": 'places by rule: rules["C1"]',
    "coverage": "part of the mapped pages that is in contiguous blocks",
    "pages": "mapped pages, over all checkpoints",
    "order": "pages mapped by folios of an order: order[4]",
    "chosen": "faults by the order that the kernel chose: chosen[4]",
    "blocks": 'blocks of the map by state: blocks["folded"]',
}
FUNCTION = "rule"
STATES = (
    "broken", "folded", "eligible", "not-eligible", "partial", "away", "block", "contiguous-block", "empty",
)  # fmt: skip
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne,
}  # fmt: skip
_SWAPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.Gt, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.GtE: ast.LtE, ast.Eq: ast.Eq, ast.NotEq: ast.NotEq,
}  # fmt: skip
_COUNT: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
}  # fmt: skip
_SAY = 'write a condition such as rule("C1"), coverage < 0.9 or order[4] == 0'
#: Characters of an expression: Python's parser is recursive.
_MOST = 1000


class Condition:
    """A condition that was read, and tried on a verdict that has every value."""

    def __init__(self, text: str, rules: Iterable[str]) -> None:
        self.text, self._rules = text, tuple(rules)
        #: The checkpoint that the last verdict did not have, as a sentence.
        self.lacking = ""
        if len(text) > _MOST:
            raise Refused(f"--when has {len(text)} characters; use at most {_MOST}")
        try:
            self._tree = ast.parse(text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            at = getattr(error, "offset", None) or 1
            raise Refused(f"--when, column {at}: this is no expression ({_told(error)}); {_SAY}") from error
        try:
            found = self._value(self._tree, sample(self._rules))
        except RecursionError as error:
            raise Refused(f"--when, column 1: it is nested too deeply; {_SAY}") from error
        if found is not UNKNOWN and not isinstance(found, bool):
            raise self._bad(self._tree, f"expected a condition and found the value {_shown(found)}; {_SAY}")

    def holds(self, verdict: Mapping[str, Any]) -> bool | None:
        """Whether it holds of a verdict; ``None`` where what was not judged could change that."""
        self.lacking = ""
        found = self._value(self._tree, verdict)
        return None if found is UNKNOWN else bool(found)

    def _bad(self, node: ast.expr, what: str) -> Refused:
        return Refused(f"--when, column {node.col_offset + 1}: {what}")

    def _value(self, node: ast.expr, of: Mapping[str, Any]) -> Any:
        known: dict[type[ast.expr], Callable[[Any, Mapping[str, Any]], Any]] = {
            ast.Constant: self._constant,
            ast.Name: self._named,
            ast.BoolOp: self._joined,
            ast.UnaryOp: self._negated,
            ast.BinOp: self._reckoned,
            ast.Compare: self._compared,
            ast.Subscript: self._counted,
            ast.Call: self._rule,
        }
        if type(node) not in known:
            raise self._never(node)
        return known[type(node)](node, of)

    def _never(self, node: ast.expr) -> Refused:
        return self._bad(node, f"{ast.unparse(node)!r} may not be said here; {_SAY}")

    def _constant(self, node: ast.Constant, _: Mapping[str, Any]) -> Any:
        if not isinstance(node.value, bool | int | float | str):
            raise self._never(node)
        return node.value

    def _named(self, node: ast.Name, of: Mapping[str, Any]) -> Any:
        if node.id not in NAMES:
            raise self._bad(node, f"there is no name {node.id!r}{_like(node.id, [*NAMES, FUNCTION])}")
        return of[node.id]

    def _negated(self, node: ast.UnaryOp, of: Mapping[str, Any]) -> Any:
        if isinstance(node.op, ast.Not):
            value = self._condition(node.operand, of)
            return UNKNOWN if value is UNKNOWN else not value
        if not isinstance(node.op, ast.USub):
            raise self._never(node)
        value = self._number(node.operand, of)
        return UNKNOWN if value is UNKNOWN or isinstance(value, AtLeast) else -value

    def _reckoned(self, node: ast.BinOp, of: Mapping[str, Any]) -> Any:
        if type(node.op) not in _COUNT:
            raise self._never(node)
        values = [self._number(each, of) for each in (node.left, node.right)]
        if any(each is UNKNOWN or isinstance(each, AtLeast) for each in values):
            return UNKNOWN
        try:
            return _COUNT[type(node.op)](*values)
        except ZeroDivisionError:
            return UNKNOWN

    def _condition(self, node: ast.expr, of: Mapping[str, Any]) -> Any:
        value = self._value(node, of)
        if value is not UNKNOWN and not isinstance(value, bool):
            raise self._bad(node, f"expected a condition and found the value {_shown(value)}; compare it, as in x > 0")
        return value

    def _number(self, node: ast.expr, of: Mapping[str, Any]) -> Any:
        value = self._value(node, of)
        if isinstance(value, AtLeast) or value is UNKNOWN:
            return value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._bad(node, f"expected a number and found {_shown(value)}; {_SAY}")
        return value

    def _joined(self, node: ast.BoolOp, of: Mapping[str, Any]) -> Any:
        """``and`` and ``or`` of three values; all are looked at, so that a mistake in the last one is found."""
        is_and = isinstance(node.op, ast.And)
        values = [self._condition(each, of) for each in node.values]
        if (not is_and) in values:
            return not is_and
        return UNKNOWN if any(value is UNKNOWN for value in values) else is_and

    def _compared(self, node: ast.Compare, of: Mapping[str, Any]) -> Any:
        values = [self._value(each, of) for each in (node.left, *node.comparators)]
        answers = []
        for op, left, right, place in zip(node.ops, values, values[1:], node.comparators, strict=False):
            if type(op) not in _COMPARE:
                raise self._bad(place, f"{ast.unparse(node)!r} may not be said here; {_SAY}")
            answers.append(self._pair(type(op), left, right, place))
        if False in answers:
            return False
        return UNKNOWN if any(each is UNKNOWN for each in answers) else True

    def _pair(self, op: type[ast.cmpop], left: Any, right: Any, place: ast.expr) -> Any:
        kinds = {str if isinstance(each, str) else bool if isinstance(each, bool) else float for each in (left, right)
                 if each is not UNKNOWN}  # fmt: skip
        if any(isinstance(each, Counts) for each in (left, right)) or len(kinds) > 1:
            raise self._bad(place, f"{_shown(left)} and {_shown(right)} cannot be compared; {_SAY}")
        if left is UNKNOWN or right is UNKNOWN or (isinstance(left, AtLeast) and isinstance(right, AtLeast)):
            return UNKNOWN
        if isinstance(right, AtLeast):
            op, left, right = _SWAPPED[op], right, left
        if isinstance(left, AtLeast):
            # The same for the least and for any larger count, or not known.
            return _least(op, left.count, right)
        return _COMPARE[op](left, right)

    def _counted(self, node: ast.Subscript, of: Mapping[str, Any]) -> Any:
        value, key = self._value(node.value, of), self._value(node.slice, of)
        if not isinstance(value, Counts):
            raise self._bad(node, f"{_shown(value)} has no parts; {_SAY}")
        if value.names and key not in value.names:
            raise self._bad(node.slice, f"there is no {value.what} {key!r}{_like(str(key), value.names)}")
        if not value.names and (isinstance(key, bool) or not isinstance(key, int)):
            raise self._bad(node.slice, f"expected an order, such as order[4], and found {_shown(key)}; {_SAY}")
        return value.get(key)

    def _rule(self, node: ast.Call, of: Mapping[str, Any]) -> Any:
        """Whether a rule has an error, at any checkpoint or at one."""
        if not isinstance(node.func, ast.Name) or node.func.id != FUNCTION or node.keywords:
            said = ast.unparse(node.func)
            raise self._bad(node, f'there is no function {said!r}; there is {FUNCTION}, as in {FUNCTION}("C1")')
        arguments = [self._value(each, of) for each in node.args]
        if not 1 <= len(arguments) <= 2 or not all(isinstance(each, str) for each in arguments):
            raise self._bad(node, 'expected rule("C1") or rule("C1", "fork child"), which names a checkpoint')
        name, *at = arguments
        if name not in self._rules:
            raise self._bad(node.args[0], f"there is no rule {name!r}{_like(name, self._rules)}")
        count = of["rules"].get(name)
        if not at:
            return self._pair(ast.Gt, count, 0, node)
        steps = of["checkpoints"]
        if at[0] not in steps:
            # Of another kernel, or of another choice of workloads.
            self.lacking = f"it has no checkpoint {at[0]!r}{_like(at[0], steps)}"
            return UNKNOWN
        if at[0] in of["steps"].get(name, ()):
            return True
        return UNKNOWN if isinstance(count, AtLeast) or count is UNKNOWN else False


def _least(op: type[ast.cmpop], least: float, other: float) -> Any:
    if op in (ast.Gt, ast.GtE):
        return True if _COMPARE[op](least, other) else UNKNOWN
    if op in (ast.Lt, ast.LtE):
        return UNKNOWN if _COMPARE[op](least, other) else False
    return (op is ast.NotEq) if least > other else UNKNOWN


def sample(rules: Iterable[str]) -> dict[str, Any]:
    """A verdict that has every value: an expression that cannot be understood is found before anything is built."""
    names = tuple(rules)
    return {
        **dict.fromkeys(("status", "errors", "not_judged", "pages"), 1),
        "outcome": "fail",
        "coverage": 0.5,
        "rules": Counts({}, names, "rule"),
        "order": Counts({}),
        "chosen": Counts({}),
        "blocks": Counts({}, STATES, "state"),
        "steps": {},
        "checkpoints": (),
    }


def _like(word: str, known: Iterable[str]) -> str:
    found = difflib.get_close_matches(word, list(known), 1)
    listed = ", ".join(known)
    return f"; did you mean {found[0]!r}? There are {listed}" if found else f"; there are {listed}"


def _shown(value: Any) -> str:
    return "counts, of which one is chosen by [...]" if isinstance(value, Counts) else repr(value)


def _told(error: BaseException) -> str:
    return str(getattr(error, "msg", "") or error or type(error).__name__)
