"""What the dialects of the filter language differ in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from trainshed.domain.filters.terms import FilterNode, Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The rules of one dialect. Words, parentheses, NOT, quotation marks and a missing AND are the same in all.

    A missing AND binds less tightly than OR: `a b OR c` is `a AND (b OR c)`.
    """

    operators: tuple[str, ...]
    #: gives the node for a path, an operator, a value and whether the value is unquoted; raises `ValueError` with a
    #: sentence if they do not go together
    comparison: Callable[[Path, str, str, bool], FilterNode]
    unescape: Callable[[str], str]  #: what stands between quotation marks, without its escapes
    mixes_and_or: bool  #: OR binds tighter than AND; otherwise a group with both needs parentheses
    comments: bool  #: `-- words` to the end of a line
    value_expressions: bool  #: a list of values is an expression with AND, OR and NOT; otherwise any value will do
    list_operators: frozenset[str]  #: operators that take a list of values
    indexes: bool  #: `args[0]` is the first element of a list
    max_characters: int
    max_terms: int  #: words and comparisons; each costs time for every document
