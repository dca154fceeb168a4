"""No code recognises a sentence of ours. What happened is data; only the output of other programs is searched.

The console shows nothing of other programs that it searches, so its scripts search for no words at all.
"""

from __future__ import annotations

import ast
import re
import re._parser as regex_parser  # type: ignore[import-not-found]  # typeshed leaves it out
import warnings
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from trainshed.control.jobs.controller import outage_message
from trainshed.domain.jobs.failure import Failure, FailureCause
from trainshed.domain.jobs.failure_text import diagnose, error_message
from trainshed.domain.jobs.job import Job, JobEventKind
from trainshed.domain.jobs.output_signs import SIGNS
from trainshed.domain.jobs.reconcile import AttemptPhase, ObservedAttempt, Transition, reconcile
from trainshed.domain.jobs.states import JobState
from trainshed.domain.jobs.training import Training
from trainshed.engines.base import Outage
from trainshed.node.process.exit_status import ExitStatus
from trainshed.node.supervisor.step_tracker import RestartCost

SOURCES = Path(__file__).parents[2] / "src" / "trainshed"
SEARCHES = {"startswith", "endswith", "partition", "rpartition", "split", "rsplit", "removeprefix", "removesuffix"}
SEARCHES |= {"find", "index", "count", "replace"}
REGEX_CALLS = {"compile", "search", "match", "fullmatch", "findall", "finditer", "sub", "split", "_sign"}
PHRASE = re.compile(r"[A-Za-z']{2,}(?:,? [A-Za-z']{2,})+")  #: two words or more

#: words of other programs, in sentences of ours by chance or because they quote them
OF_OTHERS = frozenset(
    {
        "unrecognized arguments:",  # argparse
        "not found",  # Podman and Docker
        "does not exist",  # TensorFlow
        "no version",  # uv
        "not in",  # pip
        "(Error code:",  # the form of AI Platform's errors, which a loader's message may have already
        "HTTP status",  # uv
        "<!doctype html>",
    }
)


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SOURCES.rglob("*.py")):
        name = path.relative_to(SOURCES).as_posix()
        if not name.startswith("testing/"):
            yield name, ast.parse(path.read_text())


# -- what is searched for


def searched(tree: ast.Module) -> Iterator[str]:
    """Yield the phrases that a module searches for: with string methods, with `in`, `==`, and in patterns."""
    constants = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare):
            compared = [node.left, *node.comparators]
            for operator, left, right in zip(node.ops, compared, compared[1:], strict=False):
                if isinstance(operator, ast.In | ast.NotIn | ast.Eq | ast.NotEq):
                    yield from _texts(left, constants)
                    yield from _texts(right, constants)
        elif isinstance(node, ast.Call) and node.args:
            name = _name(node)
            if isinstance(node.func, ast.Attribute) and name in SEARCHES:
                yield from _texts(node.args[0], constants)
            if name in REGEX_CALLS:
                for pattern in _texts(node.args[1 if name == "_sign" else 0], constants):
                    yield from literals(pattern)


def _texts(node: ast.expr, constants: dict[str, ast.expr]) -> Iterator[str]:
    """Yield the strings that an expression holds, through constants of the module."""
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.Constant(value=bytes(data)):
            yield data.decode("latin-1")
        case ast.Name(id=name) if name in constants:
            yield from _texts(constants[name], {})
        case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
            for each in items:
                yield from _texts(each, constants)
        case ast.Call(func=ast.Name(id="frozenset" | "set" | "tuple"), args=[inner]):
            yield from _texts(inner, constants)
        case ast.BinOp(left=left, right=right):
            yield from _texts(left, constants)
            yield from _texts(right, constants)
        case ast.JoinedStr(values=values):
            yield from (str(part.value) for part in values if isinstance(part, ast.Constant))


def literals(pattern: str) -> Iterator[str]:
    """Yield the runs of literal characters in a regular expression."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            parsed = regex_parser.parse(pattern)
    except re.error:
        return  # it is put together at run time
    yield from _runs(parsed)


def _runs(parsed: Any) -> Iterator[str]:
    run = ""
    for operation, argument in parsed:
        if operation is regex_parser.LITERAL:
            run += chr(argument)
            continue
        yield run
        run = ""
        for part in argument if isinstance(argument, tuple | list) else (argument,):
            yield from _inner(part)
    yield run


def _inner(part: Any) -> Iterator[str]:
    if isinstance(part, regex_parser.SubPattern):
        yield from _runs(part)
    elif isinstance(part, list):
        for each in part:
            yield from _inner(each)


def phrases(tree: ast.Module) -> set[str]:
    return {text.strip() for text in searched(tree) if PHRASE.search(text)}


# -- what we say


@cache
def sentences() -> frozenset[str]:
    """What the renderers make, and the other texts in the code that are sentences or parts of one."""
    return rendered() | {text for _, tree in modules() for text in _said(tree)}


def rendered() -> frozenset[str]:
    facts: dict[str, str | int | float] = {"limit_s": 60, "by": "ann", "wanted": "Podman", "image": "a/b"}
    facts |= {"detail": "x", "architecture": "s390x", "machine": "amd64", "gang_restarts": 3, "replica_restarts": 5}
    found = {sentence for sign in SIGNS for sentence in (sign.summary, sign.remedy)}
    for cause in FailureCause:
        for replica, number in (("", None), ("master-replica-0", None), ("master-replica-0", 9), ("ps-replica-0", 11)):
            failure = Failure(cause=cause, replica=replica, signal=number, exit_code=1, facts=facts)
            diagnosis = diagnose(failure)
            found |= {error_message(failure, "j"), diagnosis.summary, diagnosis.remedy}
    for status in (ExitStatus(1), ExitStatus(137), ExitStatus(None, 9), ExitStatus(None, 64)):
        found |= {RestartCost("w", status, gang, lost, 3, 2).sentence for gang in (True, False) for lost in ("", "v")}
    return frozenset(found | {outage_message(Outage(engine="The cluster", since_us=0))})


def _said(tree: ast.Module) -> Iterator[str]:
    """Yield texts of a module that are neither docstrings nor searched for."""
    skipped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and _name(node) in REGEX_CALLS:
            pattern = node.args[1 if _name(node) == "_sign" else 0]
            skipped |= {id(part) for part in ast.walk(pattern)}
    looked_for = set(searched(tree))
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and id(node) not in skipped and len(text.split()) >= 3 and text not in looked_for:
            yield text


def _name(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def found_in(tree: ast.Module) -> dict[str, str]:
    """The phrases that a module searches for and that are in a sentence of ours, each with one such sentence."""
    matches = {phrase: next((text for text in sentences() if phrase in text), "") for phrase in phrases(tree)}
    return {phrase: text for phrase, text in matches.items() if text and phrase not in OF_OTHERS}


def test_no_module_searches_for_a_sentence_of_ours() -> None:
    found = {name: matches for name, tree in modules() if (matches := found_in(tree))}
    assert found == {}


@pytest.mark.parametrize(
    "code",
    [
        'if "Clean up finished." in message: pass',
        'MARK = " has not answered since "\nengine = message.partition(MARK)[0]',
        'ENDS = frozenset({"Module completed; cleaning up."})\nkeep = message not in ENDS',
        'message.startswith(("x", "The supervisor of this job"))',
        'import re\nLIMIT = re.compile(r"ran longer than its (?:maxRunningTime|limit) of ([0-9.]+)")',
        'import re\nre.search("(?P<who>[a-z]+) (?:was killed by signal|died) [0-9]+", message)',
    ],
)
def test_a_search_for_one_is_found(code: str) -> None:
    assert found_in(ast.parse(code))


# -- the console

SCRIPTS = sorted((SOURCES / "console" / "assets" / "js").rglob("*.js"))
_COMMENT = re.compile(r"/\*.*?\*/|(?:^|(?<=\s))//[^\n]*", re.DOTALL)
_STRING = r"""(?:"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*'|`(?:[^`\\]|\\.)*`)"""
_SCRIPT_SEARCH = re.compile(
    r"\.(?:includes|startsWith|endsWith|indexOf|lastIndexOf|split|replace|replaceAll|match|matchAll|search)"
    rf"\(\s*({_STRING}|\w+)"
)
_SCRIPT_COMPARISON = re.compile(rf"[!=]==?\s*({_STRING}|\w+)|({_STRING})\s*[!=]==|\bcase\s+({_STRING})")
_SCRIPT_CONSTANT = re.compile(rf"\bconst (\w+) = ({_STRING})")
_SCRIPT_PATTERN = re.compile(
    r"(?:[(,=:?!&|\[{;]|\breturn|=>)\s*/((?:[^/\\\[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+)/"
    rf"|\bRegExp\(\s*({_STRING})"
)
_SUBSTITUTION = re.compile(r"\$\{[^}]*\}")
_NO_LITERAL = re.compile(r"\\.|\[(?:[^\]\\]|\\.)*\]")  #: escapes and classes of a pattern
_WORD = re.compile(r"[A-Za-z]{2,}[.,:;]? | [A-Za-z]{2,}")  #: beside a space


def words_searched(script: str) -> set[str]:
    """The texts with words that a script searches for: with methods of strings, comparisons and patterns."""
    code = _COMMENT.sub("", script)
    constants = dict(_SCRIPT_CONSTANT.findall(code))
    matches = [*_SCRIPT_SEARCH.finditer(code), *_SCRIPT_COMPARISON.finditer(code)]
    found = [next(filter(None, match.groups())) for match in matches]
    texts = {_SUBSTITUTION.sub("", constants.get(text, text)) for text in found}
    patterns = {next(filter(None, match.groups())) for match in _SCRIPT_PATTERN.finditer(code)}
    return {text for text in texts if _WORD.search(text)} | {
        pattern for pattern in patterns if _WORD.search(_NO_LITERAL.sub("", pattern))
    }


def test_no_script_of_the_console_searches_for_words() -> None:
    assert len(SCRIPTS) > 50
    assert {path.name: found for path in SCRIPTS if (found := words_searched(path.read_text()))} == {}


@pytest.mark.parametrize(
    "code",
    [
        'if (message.includes("does not answer")) {}',
        "if (error.message.startsWith('No server')) {}",
        'const MARK = "Wait for it with: ";\nconst at = text.indexOf(MARK);',
        "const [, path] = /^Field: (\\S+) Error: ([^]*)$/.exec(messageOf(error)) ?? [];",
        "return /\\bwith: (trainshed [^]*)/.test(text);",
        'if (messageOf(error) === "It is gone.") {}',
        'switch (text) { case "It is gone.": }',
        'new RegExp("was cancelled by (.*)")',
    ],
)
def test_a_search_of_a_script_is_found(code: str) -> None:
    assert words_searched(code)


@pytest.mark.parametrize(
    "code",
    [
        "// text.includes('a b')",
        'name.split(",") + x.replaceAll("_", " ") === "READY"',
        "const half = all / 2 / count; // of the rest / of all",
        "/^[2-9 a-z]/.test(each)",
        'h("p", null, "It is gone.")',
        "if (height !== `${Math.max(10 - top, 0)}px`) {}",
    ],
)
def test_what_a_script_says_is_no_search(code: str) -> None:
    assert words_searched(code) == set()


def test_other_sentences_change_no_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(project="p", id="j", workload=Training.parse({"pythonModule": "m"}), state=JobState.RUNNING, created_us=1)
    seen = [
        ObservedAttempt(phase=AttemptPhase.ENDED, outcome=outcome, failure=Failure(cause=cause, replica="ps-replica-0"))
        for cause in FailureCause
        for outcome in (JobState.FAILED, JobState.CANCELLED)
    ]

    def decided() -> list[tuple[Job, list[tuple[JobEventKind, str]]]]:
        actions = [reconcile(job, each, now_us=5) for each in [*seen, ObservedAttempt(phase=AttemptPhase.LOST)]]
        assert all(isinstance(action, Transition) for action in actions)
        return [
            (action.job, [(event.kind, event.severity) for event in action.events])
            for action in actions
            if isinstance(action, Transition)
        ]

    before = decided()
    monkeypatch.setattr("trainshed.domain.jobs.reconcile.error_message", lambda failure, job: "Otherwise.")
    assert decided() == before
