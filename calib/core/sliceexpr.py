"""Expressions over the columns of a scan index: ``luma_mean<60 and (small_count>=3 or class_share[Pole]>0.01)``.

    expression   either {"or" either}
    either       both {"and" both}
    both         "not" both | "(" expression ")" | comparison
    comparison   operand {("<" | "<=" | ">" | ">=" | "==" | "=" | "!=") operand}
    operand      number | "text" | column | column "[" class "]"

A parser of its own, so that nothing a user types is ever run. Chains read as in mathematics: ``20 < luma_mean < 60``.
"""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calib.errors import UsageError
from calib.types.scores import ScoreTable

Mask = NDArray[np.bool_]
_TOKEN = re.compile(
    r"\s*(?:(?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?%?)"
    r"|(?P<text>'[^']*'|\"[^\"]*\")"
    r"|(?P<name>[^\W\d][\w.-]*)"
    r"|(?P<index>\[[^\]]*\])"
    r"|(?P<sign><=|>=|==|!=|&&|\|\||[<>=()&|!]))"
)
_WORDS = {"&": "and", "&&": "and", "|": "or", "||": "or", "!": "not", "and": "and", "or": "or", "not": "not"}
_COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "==": operator.eq, "=": operator.eq, "!=": operator.ne,
}  # fmt: skip
_HIDDEN = frozenset({"sha256", "path", "label_path", "thumbnail", "phash", "group", "luma_histogram", "object_areas"})


def evaluate_expression(text: str, table: ScoreTable, groups: Sequence[Mapping[str, str]], place: str) -> Mask:
    """Find the rows an expression holds for; a comparison with NaN (no label) does not hold.

    Args:
        text: the expression.
        table: scores.
        groups: each row's manifest columns, which an expression may name too.
        place: the flag, for messages.

    Returns:
        bool ``[N]``.

    Raises:
        UsageError: with the position of the mistake.
    """
    return _Parser(text, table, groups, place).parse()


def column_names(table: ScoreTable, groups: Sequence[Mapping[str, str]]) -> list[str]:
    """Columns that an expression may name."""
    own = [name for name in table.columns if name not in _HIDDEN]
    return sorted({*own, *(name for group in groups for name in group)})


class _Parser:
    """Recursive descent over the tokens; every method reads one rule of the grammar."""

    def __init__(self, text: str, table: ScoreTable, groups: Sequence[Mapping[str, str]], place: str) -> None:
        self._text, self._table, self._groups, self._place = text, table, groups, place
        self._tokens = self._split()
        self._at = 0

    def parse(self) -> Mask:
        mask = self._either()
        kind, word, _ = self._peek()
        if kind != "end":
            raise self._wrong("`and`, `or` or the end", repr(word))
        return mask

    def _split(self) -> list[tuple[str, str, int]]:
        tokens, start = [], 0
        text = self._text.rstrip()
        while start < len(text):
            found = _TOKEN.match(text, start)
            if found is None:
                at = len(text) - len(text[start:].lstrip())
                raise self._error(at, "a column, a number, a comparison or a bracket", repr(text[start:].lstrip()[0]))
            group = found.lastgroup or ""
            word = found[group]
            is_word = group in ("name", "sign") and word.lower() in _WORDS
            kind, meaning = ("word", _WORDS[word.lower()]) if is_word else (group, word)
            tokens.append((kind, meaning, found.start(group)))
            start = found.end()
        return [*tokens, ("end", "the end", len(text))]

    def _peek(self) -> tuple[str, str, int]:
        return self._tokens[self._at]

    def _take(self, *words: str) -> bool:
        kind, word, _ = self._peek()
        if word in words and kind in ("word", "sign"):
            self._at += 1
            return True
        return False

    def _either(self) -> Mask:
        mask = self._both()
        while self._take("or"):
            mask = mask | self._both()
        return mask

    def _both(self) -> Mask:
        mask = self._single()
        while self._take("and"):
            mask = mask & self._single()
        return mask

    def _single(self) -> Mask:
        if self._take("not"):
            return ~self._single()
        if self._take("("):
            mask = self._either()
            if not self._take(")"):
                raise self._wrong("`)`", repr(self._peek()[1]))
            return mask
        return self._comparison()

    def _comparison(self) -> Mask:
        left = self._operand()
        mask: Mask | None = None
        while self._peek()[1] in _COMPARISONS and self._peek()[0] == "sign":
            sign = self._peek()[1]
            self._at += 1
            right = self._operand()
            holds = self._compare(sign, left, right)
            mask, left = holds if mask is None else mask & holds, right
        if mask is not None:
            return mask
        if isinstance(left, np.ndarray) and left.dtype == bool:
            return left
        raise self._wrong("a comparison such as `< 60`", repr(self._peek()[1]))

    def _compare(self, sign: str, left: Any, right: Any) -> Mask:
        texts = [
            isinstance(side, str) or (isinstance(side, np.ndarray) and side.dtype.kind in "UO")
            for side in (left, right)
        ]
        if texts[0] != texts[1]:
            left, right = self._as_texts(left), self._as_texts(right)
            if sign not in ("=", "==", "!="):
                raise self._wrong("numbers on both sides of " + sign, "text")
        holds = np.asarray(_COMPARISONS[sign](left, right), bool)
        mask = np.broadcast_to(holds, (len(self._table),)).copy()
        for side in (left, right):
            if isinstance(side, np.ndarray) and side.dtype.kind == "f":
                mask &= ~np.isnan(side)
        return mask

    def _as_texts(self, side: Any) -> Any:
        if isinstance(side, float):
            return f"{side:g}"
        if isinstance(side, np.ndarray) and side.dtype.kind not in "UO":
            raise self._wrong("a number to compare this column with", "text")
        return side

    def _operand(self) -> Any:
        kind, word, _ = self._peek()
        self._at += 1
        if kind == "number":
            return float(word.rstrip("%")) / (100 if word.endswith("%") else 1)
        if kind == "text":
            return word[1:-1]
        if kind != "name":
            self._at -= 1
            raise self._wrong("a column or a number", repr(word))
        if self._peek()[0] == "index":
            index = self._peek()[1][1:-1].strip().strip("'\"")
            self._at += 1
            return self._class_column(word, index)
        return self._column(word)

    def _column(self, name: str) -> Any:
        if any(name in group for group in self._groups):
            return np.array([group.get(name, "") for group in self._groups], object)
        column = self._table.columns[self._known(name)]
        if column.ndim > 1:
            raise self._wrong(f"{name}[CLASS]: this column has a value a class", name)
        return column if column.dtype.kind in "bUO" else np.asarray(column, np.float64)

    def _class_column(self, name: str, index: str) -> Any:
        column = self._table.columns[self._known(name)]
        names = self._table.class_names
        if column.ndim != 2 or column.shape[1] != len(names):
            raise self._wrong(f"{name} without brackets: it has one value an image", f"[{index}]")
        if index not in names:
            close = difflib.get_close_matches(index, names, n=1)
            raise self._wrong("a class: " + ", ".join(names), repr(index), _hint(close))
        return np.asarray(column[:, names.index(index)], np.float64)

    def _known(self, name: str) -> str:
        """Find a column by its name, whatever the order of its words: ``mean_luma`` is ``luma_mean``."""
        names = [item for item in self._table.columns if item not in _HIDDEN]
        if name in names:
            return name
        turned = [item for item in names if sorted(item.split("_")) == sorted(name.lower().split("_"))]
        if len(turned) == 1:
            return turned[0]
        self._at -= 1
        every = column_names(self._table, self._groups)
        close = difflib.get_close_matches(name, every, n=1)
        raise self._wrong("a column of the scan index: " + ", ".join(every), repr(name), _hint(close))

    def _wrong(self, expected: str, got: str, remedy: str = "") -> UsageError:
        return self._error(self._tokens[min(self._at, len(self._tokens) - 1)][2], expected, got, remedy)

    def _error(self, at: int, expected: str, got: str, remedy: str = "") -> UsageError:
        return UsageError(
            f"{self._place}, character {at + 1} of {self._text!r}", expected=expected, got=got,
            remedy=remedy or 'write for example "luma_mean<60 and small_count>=3"',
        )  # fmt: skip


def _hint(close: Sequence[str]) -> str:
    return f"did you mean {close[0]!r}?" if close else ""
