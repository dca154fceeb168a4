"""Every order of writes, deletes and changes of a few objects, against a small model, with restarts in between."""

from __future__ import annotations

import base64
import hashlib
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from trainshed.buckets.file_backend import FileBackend
from trainshed.domain.objects import ListQuery, ObjectDraft, ObjectInfo, ObjectMetadata, Preconditions
from trainshed.domain.storage.rules import BucketRules
from trainshed.errors import ConditionNotMetError, NotFoundError, PermissionDeniedError

NAMES = st.sampled_from(["a", "b", "folder/a", "folder/b", "folder/deep/a"])
CONDITIONS = st.sampled_from(["none", "absent", "current", "other"])


@dataclass
class Known:
    """What must be there of one name: the live version, and those before."""

    live: tuple[int, bytes] | None = None
    before: dict[int, bytes] = field(default_factory=dict)
    labels: dict[int, str] = field(default_factory=dict)  #: by generation
    held: bool = False  #: the live one

    @property
    def contents(self) -> dict[int, bytes]:
        """The bytes of all versions, by generation."""
        return dict([*self.before.items(), *([self.live] if self.live else [])])


class Objects(RuleBasedStateMachine):
    """One bucket. The clock stands still or goes back now and then, and generations grow all the same."""

    @initialize(versioned=st.booleans())
    def begin(self, versioned: bool) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self.now_us = 1_700_000_000_000_000
        self.bucket_rules = BucketRules(versioned=versioned)
        self.known: dict[str, Known] = {}
        self.backend = self._open()
        self.backend.make_bucket("bucket")

    def teardown(self) -> None:
        if hasattr(self, "_folder"):
            self._folder.cleanup()

    def _open(self) -> FileBackend:
        folder = Path(self._folder.name)
        return FileBackend(
            folder / "buckets", folder / "uploads", clock=lambda: self.now_us, rules=lambda bucket: self.bucket_rules
        )

    def _condition(self, known: Known, condition: str) -> tuple[Preconditions, bool]:
        """The condition of a write, and whether it holds."""
        current = known.live[0] if known.live else 0
        wanted = {"none": None, "absent": 0, "current": current, "other": current + 5}[condition]
        return Preconditions(generation=wanted), wanted in (None, current)

    @rule(name=NAMES, data=st.binary(max_size=20), condition=CONDITIONS)
    def put(self, name: str, data: bytes, condition: str) -> None:
        known = self.known.setdefault(name, Known())
        conditions, holds = self._condition(known, condition)
        refusal = None
        with self.backend.stage() as staged:
            staged.write(data)
            try:
                info = self.backend.commit(staged, ObjectDraft(bucket="bucket", name=name, conditions=conditions))
            except (ConditionNotMetError, PermissionDeniedError) as exc:
                refusal = exc
        blocked = known.held and not self.bucket_rules.versioned
        assert (refusal is None) == (holds and not blocked), refusal
        if refusal is None:
            assert info.generation > max(known.contents, default=0)
            self._retire(known)
            known.live = info.generation, data
            known.labels.pop(info.generation, None)  # of a version that was removed before the clock went back

    @rule(name=NAMES, condition=CONDITIONS)
    def delete(self, name: str, condition: str) -> None:
        known = self.known.setdefault(name, Known())
        conditions, holds = self._condition(known, condition)
        blocked = known.held and not self.bucket_rules.versioned
        try:
            self.backend.delete("bucket", name, conditions)
        except NotFoundError:
            assert known.live is None
        except ConditionNotMetError:
            assert not holds
        except PermissionDeniedError:
            assert blocked
        else:
            assert known.live is not None
            assert holds
            assert not blocked
            self._retire(known)

    def _retire(self, known: Known) -> None:
        if known.live is not None and self.bucket_rules.versioned:
            known.before[known.live[0]] = known.live[1]
        known.live, known.held = None, False

    @rule(name=NAMES, label=st.sampled_from("xyz"))
    def patch(self, name: str, label: str) -> None:
        known = self.known.setdefault(name, Known())

        def labelled(info: ObjectInfo) -> ObjectMetadata:
            return replace(info.traits, metadata={"label": label})

        try:
            before = self.backend.info("bucket", name)
            info = self.backend.patch("bucket", name, labelled)
        except NotFoundError:
            assert known.live is None
            return
        assert known.live is not None
        assert (info.generation, info.metageneration) == (known.live[0], before.metageneration + 1)
        known.labels[info.generation] = label

    @rule(name=NAMES, held=st.booleans())
    def hold(self, name: str, held: bool) -> None:
        known = self.known.setdefault(name, Known())
        if (
            known.live is None or self.bucket_rules.versioned
        ):  # what a hold does to noncurrent versions has tests of its own
            return
        self.backend.patch("bucket", name, lambda info: replace(info.traits, temporary_hold=held))
        known.held = held

    @rule(name=NAMES, chosen=st.integers(0, 3))
    def remove_version(self, name: str, chosen: int) -> None:
        known = self.known.setdefault(name, Known())
        if generations := sorted(known.before):
            generation = generations[chosen % len(generations)]
            self.backend.delete("bucket", name, Preconditions(), generation=generation)
            del known.before[generation]

    @rule(seconds=st.integers(-3600, 3600))
    def turn_the_clock(self, seconds: int) -> None:
        self.now_us += seconds * 1_000_000

    @rule()
    def restart(self) -> None:
        self.backend = self._open()
        self.backend.sweep()

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "backend"):
            return
        listed = self.backend.list("bucket", ListQuery(versions=True)).items
        wanted = [
            (name, generation, known.live is None or generation != known.live[0])
            for name, known in sorted(self.known.items())
            for generation in sorted(known.contents)
        ]
        assert [(info.name, info.generation, info.deleted_us > 0) for info in listed] == wanted
        for info in listed:
            known = self.known[info.name]
            data = known.contents[info.generation]
            with self.backend.open("bucket", info.name, generation=info.generation) as reader:
                assert reader.read(0, reader.info.size) == data
            assert info.md5 == base64.b64encode(hashlib.md5(data, usedforsecurity=False).digest()).decode()
            assert info.traits.metadata.get("label") == known.labels.get(info.generation)


Objects.TestCase.settings = settings(max_examples=20, stateful_step_count=15, deadline=None)
TestObjects = pytest.mark.fault("F43")(Objects.TestCase)
