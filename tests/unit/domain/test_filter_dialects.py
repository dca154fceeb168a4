"""Two dialects of one filter language: what both accept means the same; gcloud's refuses what could mean two things.

Expressions are generated as trees. The oracles evaluate the trees by the rule of each dialect, without the parser.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainshed.domain.filters.gcloud import GCLOUD
from trainshed.domain.filters.parser import Dialect, parse
from trainshed.domain.filters.server import SERVER
from trainshed.errors import InvalidArgumentError

FIELDS = "abc"
DOCUMENTS = [dict(zip(FIELDS, values, strict=True)) for values in product(("yes", "no"), repeat=len(FIELDS))]
REFUSED = "parentheses are required when AND and OR are combined"


@dataclass(frozen=True)
class Atom:
    """Whether a field is `yes`, in one of the forms that both dialects have."""

    field: str
    form: str

    def text(self) -> str:
        return self.form.format(self.field)


@dataclass(frozen=True)
class Term:
    """An atom or a group, with what negates it."""

    sign: str
    operand: Atom | Group

    def text(self) -> str:
        inner = self.operand.text()
        return self.sign + (f"({inner})" if isinstance(self.operand, Group) else inner)


@dataclass(frozen=True)
class Group:
    """Terms, and the word between each two of them: AND, OR or none."""

    terms: tuple[Term, ...]
    words: tuple[str, ...]

    def text(self) -> str:
        rest = zip(self.words, self.terms[1:], strict=True)
        return " ".join([self.terms[0].text(), *(f"{word} {term.text()}".strip() for word, term in rest)])

    def split(self, *at: str) -> list[Group]:
        """The parts between these words."""
        parts = [([self.terms[0]], list[str]())]
        for word, term in zip(self.words, self.terms[1:], strict=True):
            if word in at:
                parts.append(([term], []))
            else:
                parts[-1][0].append(term)
                parts[-1][1].append(word)
        return [Group(tuple(terms), tuple(words)) for terms, words in parts]

    def is_ambiguous(self) -> bool:
        inner = (term.operand for term in self.terms)
        return {"AND", "OR"} <= set(self.words) or any(isinstance(g, Group) and g.is_ambiguous() for g in inner)


def by_the_servers_rule(node: Atom | Group | Term, document: dict[str, str]) -> bool:
    """OR first; then AND, written or not."""
    match node:
        case Atom():
            return document[node.field] == "yes"
        case Term():
            return by_the_servers_rule(node.operand, document) is not bool(node.sign)
        case Group():
            return all(any(by_the_servers_rule(t, document) for t in part.terms) for part in node.split("AND", ""))


def by_the_common_rule(node: Atom | Group | Term, document: dict[str, str]) -> bool:
    """AND first, as most languages have it; then OR; then terms without a word between them."""
    match node:
        case Atom():
            return document[node.field] == "yes"
        case Term():
            return by_the_common_rule(node.operand, document) is not bool(node.sign)
        case Group():
            return all(
                any(all(by_the_common_rule(t, document) for t in both.terms) for both in either.split("OR"))
                for either in node.split("")
            )


def _groups() -> st.SearchStrategy[Group]:
    forms = st.sampled_from(["{}=yes", '{}="yes"', "{} = 'yes'", "{}:yes", "{}:ye*", "{}!=no", '{}=(yes OR "maybe")'])
    signs = st.sampled_from(["", "", "NOT ", "-"])
    words = st.sampled_from(["AND", "OR", ""])

    def group(terms: st.SearchStrategy[Term]) -> st.SearchStrategy[Group]:
        return st.lists(terms, min_size=1, max_size=4).flatmap(
            lambda terms: st.builds(Group, st.just(tuple(terms)), st.tuples(*[words] * (len(terms) - 1)))
        )

    atoms = st.builds(Term, signs, st.builds(Atom, st.sampled_from(FIELDS), forms))
    return group(st.recursive(atoms, lambda inner: st.builds(Term, signs, group(inner)), max_leaves=8))


def _results(text: str, dialect: Dialect) -> list[bool]:
    query = parse(text, dialect)
    return [query.matches(document) for document in DOCUMENTS]


@given(_groups())
def test_the_server_evaluates_or_before_and(group: Group) -> None:
    assert _results(group.text(), SERVER) == [by_the_servers_rule(group, document) for document in DOCUMENTS]


@given(_groups())
def test_gclouds_dialect_refuses_what_could_mean_two_things_and_agrees_with_the_server_on_the_rest(
    group: Group,
) -> None:
    text = group.text()
    if group.is_ambiguous():
        with pytest.raises(InvalidArgumentError, match=REFUSED):
            parse(text, GCLOUD)
    else:
        results = _results(text, GCLOUD)
        assert results == [by_the_common_rule(group, document) for document in DOCUMENTS]
        assert results == _results(text, SERVER)


def test_every_expression_of_three_fields_that_the_rules_disagree_on_is_refused() -> None:
    disagreed = 0
    for words in product(("AND", "OR", ""), repeat=2):
        group = Group(tuple(Term("", Atom(name, "{}=yes")) for name in FIELDS), words)
        readings = {tuple(rule(group, d) for d in DOCUMENTS) for rule in (by_the_servers_rule, by_the_common_rule)}
        if len(readings) == 2:
            disagreed += 1
            with pytest.raises(InvalidArgumentError, match=REFUSED):
                parse(group.text(), GCLOUD)
    assert disagreed == 2


def test_the_refusal_names_the_word_and_the_remedy() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        parse("state=FAILED OR state=RUNNING AND jobId=b", GCLOUD)
    assert str(caught.value) == (
        "The filter can't be read at character 31: parentheses are required when AND and OR are combined. "
        "Write (a OR b) AND c, or a OR (b AND c), whichever is meant."
    )
    for text in ("(state=FAILED OR state=RUNNING) AND jobId=b", "state=FAILED OR (state=RUNNING AND jobId=b)"):
        assert parse(text, GCLOUD).text == text
