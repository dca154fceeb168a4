"""What the store of models and versions does, on SQLite and on PostgreSQL alike."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TypeVar

import pytest
import sqlalchemy as sa

from trainshed.domain.models.model import Model
from trainshed.domain.models.version import Version, VersionState
from trainshed.domain.models.version_details import BatchInvariance, ServedModel, VersionDetails, VersionParity
from trainshed.domain.operations import EMPTY, Operation, OperationType, response
from trainshed.domain.policies import Binding
from trainshed.errors import AbortedError, AlreadyExistsError, DataLossError, FailedPreconditionError, NotFoundError
from trainshed.store import database as database_module
from trainshed.store.database import Database
from trainshed.store.models import ModelChange, ModelStore
from trainshed.store.operations import OperationStore
from trainshed.store.policies import PolicyStore
from trainshed.store.projects import ProjectStore

T = TypeVar("T")
START = (2**62, "")
READY, FAILED, DELETING = VersionState.READY, VersionState.FAILED, VersionState.DELETING


SERVED = ServedModel(
    loader="openvino",
    detail="OpenVINO 2026.1",
    batching=True,
    invariance=BatchInvariance(difference=2e-7, rows=65, message="Requests are batched."),
    sample={"instances": [[0.5]]},
    signatures={"serving_default": {"inputs": {"x": {"dtype": "float32", "shape": [-1, 1]}}}},
    parity=VersionParity(reference="TensorFlow", difference=0.0, within=True, message="The answers are TensorFlow's."),
    site="/packages",
    size=5,
    image="sha256:f00",
)


def model(model_id: str = "m", *, project: str = "shed", created_us: int = 1) -> Model:
    body = {"description": "ü \0 '; drop table models; --", "regions": ["us-central1"]}
    return Model(project=project, id=model_id, body=body, labels={"a": "b"}, created_us=created_us)


def version(version_id: str = "v1", *, model_id: str = "m", project: str = "shed", created_us: int = 1) -> Version:
    body = {"deploymentUri": "gs://b/d/"}
    return Version(
        project=project,
        model=model_id,
        id=version_id,
        body=body,
        labels={"c": "d"},
        details=VersionDetails(runtime="2.21", engine="ray", notes=("n",)),
        created_us=created_us,
    )


def operation(operation_id: str = "create_m_v1-1", *, project: str = "shed") -> Operation:
    return Operation.begin(project, operation_id, {"operationType": OperationType.CREATE_VERSION.value}, now_us=1_000)


def at_once(count: int, work: Callable[[int], T]) -> list[T | Exception]:
    """The results of `count` calls from as many threads, errors of ours among them."""

    def one(number: int) -> T | Exception:
        try:
            return work(number)
        except (AbortedError, AlreadyExistsError, FailedPreconditionError, NotFoundError) as exc:
            return exc

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(one, range(count)))


class Shed:
    """The store with shortcuts to get versions into their states."""

    def __init__(self, database: Database) -> None:
        self.models = ModelStore(database)
        self.operations = OperationStore(database)
        self.policies = PolicyStore(database)

    def creating(self, version_id: str = "v1", *, created_us: int = 1) -> tuple[Version, Operation]:
        new = version(version_id, created_us=created_us)
        return self.models.add_version(new, operation(f"create_m_{version_id}-1"))

    def ready(self, version_id: str = "v1", *, created_us: int = 1) -> Version:
        made, begun = self.creating(version_id, created_us=created_us)
        done = begun.succeeded(response("Version", {"name": made.name}), now_us=2_000)
        return self.models.record_version(made.to(READY, files="f00"), done)

    def deleting(self, found: Version) -> tuple[Version, Operation]:
        begun = operation(f"delete_m_{found.id}-1")
        _, change = self.models.change(
            "shed", "m", lambda m, vs: ModelChange(version=found.to(DELETING, operation=begun.id), operation=begun)
        )
        assert change.version is not None
        assert change.operation is not None
        return change.version, change.operation

    def remove(self, found: Version) -> None:
        gone, begun = self.deleting(found)
        self.models.remove_version(gone, begun.succeeded(EMPTY, now_us=9))

    def against(self, rivals: Sequence[Callable[[Model, Sequence[Version]], ModelChange]], number: int) -> object:
        return self.models.change("shed", "m", rivals[number])


@pytest.fixture
def shed(database: Database) -> Shed:
    made = Shed(database)
    made.models.add(model())
    return made


class TestModels:
    def test_a_model_comes_back_as_it_was_stored(self, shed: Shed) -> None:
        stored = replace(model("other"), default_version="v1", previous_version="v0", split={"v1": 90, "v0": 10})
        shed.models.add(stored)
        assert shed.models.get("shed", "other") == stored
        assert shed.models.get("shed", "m") == model()

    def test_a_name_is_taken_in_its_project_and_while_it_is_used(self, shed: Shed) -> None:
        with pytest.raises(AlreadyExistsError, match="A model with the same name already exists"):
            shed.models.add(model(created_us=2))
        shed.models.add(model("M"))
        shed.models.add(model(project="other"))
        with pytest.raises(NotFoundError):
            shed.models.get("shed", "x")
        shed.models.remove("shed", "m", operation("delete_m-1"))
        shed.models.add(model(created_us=3))
        assert shed.models.get("shed", "m").created_us == 3
        assert shed.operations.get("shed", "delete_m-1").id == "delete_m-1"

    def test_of_many_creates_at_once_one_wins(self, shed: Shed) -> None:
        results = at_once(8, lambda number: shed.models.add(model("new", created_us=number)))
        assert sum(isinstance(result, Model) for result in results) == 1

    def test_pages_are_newest_first_with_the_default_of_each(self, shed: Shed) -> None:
        shed.ready("v1")
        for number in range(5):
            shed.models.add(model(f"m{number}", created_us=10 + number // 2))
        shed.models.add(model("foreign", project="other", created_us=11))
        seen: list[tuple[str, str]] = []
        before = START
        while page := shed.models.page("shed", before=before, limit=2):
            seen += [(found.id, found.default.id if found.default else "") for found in page]
            before = (page[-1].order_us, page[-1].id)
        assert seen == [("m4", ""), ("m3", ""), ("m2", ""), ("m1", ""), ("m0", ""), ("m", "v1")]
        assert shed.models.listed("shed", "m").default == shed.models.version("shed", "m", "v1")
        assert shed.models.listed("shed", "m0").default is None

    def test_a_model_with_versions_stays(self, shed: Shed) -> None:
        found, _ = shed.creating()
        with pytest.raises(FailedPreconditionError, match=r"has versions \(v1\)"):
            shed.models.remove("shed", "m", operation("delete_m-1"))
        with pytest.raises(NotFoundError):
            shed.operations.get("shed", "delete_m-1")
        shed.remove(shed.models.record_version(found.to(FAILED, error="no")))
        shed.models.remove("shed", "m", operation("delete_m-1"))
        with pytest.raises(NotFoundError):
            shed.models.remove("shed", "m", operation("delete_m-2"))

    def test_a_new_model_does_not_inherit_the_policy_of_an_old_one(self, shed: Shed) -> None:
        name = shed.models.get("shed", "m").name
        shed.policies.replace(name, [Binding(role="roles/ml.viewer", members=("user:ann",))], generation=0)
        shed.models.remove("shed", "m", operation("delete_m-1"))
        assert shed.policies.get(name).generation == 0

    def test_a_change_that_raises_leaves_nothing(self, shed: Shed) -> None:
        def decide(found: Model, versions: object) -> ModelChange:
            raise FailedPreconditionError("no")

        with pytest.raises(FailedPreconditionError):
            shed.models.change("shed", "m", decide)
        with pytest.raises(NotFoundError):
            shed.models.change("shed", "x", lambda m, vs: ModelChange())
        assert shed.models.get("shed", "m").generation == 1

    def test_of_many_changes_at_once_none_is_lost(self, shed: Shed) -> None:
        def work(number: int) -> object:
            return shed.models.change(
                "shed", "m", lambda m, vs: ModelChange(model=replace(m, labels={**m.labels, f"n{number}": ""}))
            )

        at_once(8, work)
        found = shed.models.get("shed", "m")
        assert found.labels == {"a": "b"} | {f"n{number}": "" for number in range(8)}
        assert found.generation == 9

    def test_operations_begun_in_the_same_moment_get_ids_of_their_own(self, shed: Shed) -> None:
        shed.models.add(model("a_b"))
        results = at_once(
            8,
            lambda number: shed.models.change(
                "shed", ("m", "a_b")[number % 2], lambda m, vs: ModelChange(operation=operation("update_m-7"))
            ),
        )
        assert not [result for result in results if isinstance(result, Exception)]
        ids = {found.id for found in shed.operations.page("shed", before=START, limit=99)}
        assert ids == {f"update_m-{7 + number}" for number in range(8)}


class TestVersions:
    def test_a_version_comes_back_as_it_was_stored_with_its_operation(self, shed: Shed) -> None:
        stored, begun = shed.models.add_version(version(), operation())
        assert stored == replace(version(), operation=begun.id)
        assert shed.models.version("shed", "m", "v1") == stored
        assert shed.operations.get("shed", begun.id) == begun
        assert shed.models.version_listed("shed", "m", "v1") == (shed.models.get("shed", "m"), stored)

    def test_models_and_versions_in_short_are_newest_first_and_of_one_project(self, shed: Shed) -> None:
        shed.models.add(model("newer", created_us=2))
        shed.models.add(model("foreign", project="other"))
        shed.ready("v1")
        made, begun = shed.creating("v2", created_us=2)
        shed.models.record_version(made.to(FAILED, error="bad"), begun.failed(9, "bad", now_us=2))
        assert shed.models.names("shed", limit=9) == [("newer", ""), ("m", "v1")]
        assert shed.models.names("shed", limit=1) == [("newer", "")]
        assert shed.models.version_lines("shed") == [("m", "v2", FAILED, "bad"), ("m", "v1", READY, "")]
        assert shed.models.version_lines("other") == []

    def test_a_name_is_taken_in_its_model(self, shed: Shed) -> None:
        shed.creating()
        with pytest.raises(AlreadyExistsError, match="A version with the same name already exists") as caught:
            shed.models.add_version(version(created_us=2), operation("create_m_v1-2"))
        assert caught.value.field == "version.name"
        with pytest.raises(NotFoundError):
            shed.operations.get("shed", "create_m_v1-2")
        with pytest.raises(NotFoundError, match="no model x"):
            shed.models.add_version(version(model_id="x"), operation("create_x_v1-1"))
        with pytest.raises(NotFoundError, match="no version v2"):
            shed.models.version("shed", "m", "v2")

    def test_the_first_that_is_ready_becomes_the_default_in_one_step_with_its_operation(self, shed: Shed) -> None:
        first, first_operation = shed.creating("v1")
        second, second_operation = shed.creating("v2", created_us=2)
        shed.models.record_version(first.to(FAILED, error="bad \0"), first_operation.failed(9, "bad", now_us=2))
        assert shed.models.get("shed", "m").default_version == ""
        done = second_operation.succeeded(response("Version", {"name": second.name}), now_us=3)
        shed.models.record_version(second.to(READY, files="f00", details=replace(second.details, served=SERVED)), done)
        assert shed.models.get("shed", "m").default_version == "v2"
        assert shed.operations.get("shed", second_operation.id).response == {
            "@type": "type.googleapis.com/google.cloud.ml.v1.Version",
            "name": second.name,
            "isDefault": True,
        }
        shed.ready("v3", created_us=3)
        assert shed.models.get("shed", "m").default_version == "v2"
        assert shed.operations.get("shed", "create_m_v3-1").response == {
            "@type": "type.googleapis.com/google.cloud.ml.v1.Version",
            "name": shed.models.version("shed", "m", "v3").name,
        }
        found = shed.models.version("shed", "m", "v2")
        assert (found.state, found.files, found.operation, found.generation) == (READY, "f00", "", 2)
        assert found.details == replace(second.details, served=SERVED)
        assert shed.models.version("shed", "m", "v1").error == "bad \ufffd"

    def test_a_write_over_a_newer_version_or_operation_is_aborted_whole(self, shed: Shed) -> None:
        made, begun = shed.creating()
        shed.models.change("shed", "m", lambda m, vs: ModelChange(version=replace(vs[0], labels={"x": "1"})))
        done = begun.succeeded(EMPTY, now_us=2)
        with pytest.raises(AbortedError):
            shed.models.record_version(made.to(READY), done)
        assert shed.models.get("shed", "m").default_version == ""
        assert not shed.operations.get("shed", begun.id).done

        patched = shed.models.version("shed", "m", "v1")
        shed.operations.record(begun.cancelling())
        with pytest.raises(AbortedError):
            shed.models.record_version(patched.to(READY), done)
        assert shed.models.version("shed", "m", "v1") == patched
        assert shed.models.get("shed", "m").default_version == ""

    def test_a_version_that_goes_takes_its_operation_and_its_place_along(self, shed: Shed) -> None:
        last = shed.ready("v1")
        gone, begun = shed.deleting(last)
        assert (gone.operation, gone.generation) == (begun.id, 3)
        assert shed.models.get("shed", "m").default_version == "v1"
        with pytest.raises(AbortedError):
            shed.models.remove_version(last, begun.succeeded(EMPTY, now_us=9))
        shed.models.remove_version(gone, begun.succeeded(EMPTY, now_us=9))
        assert shed.models.get("shed", "m").default_version == ""
        assert shed.operations.get("shed", begun.id).done
        with pytest.raises(NotFoundError):
            shed.models.version("shed", "m", "v1")
        shed.ready("v1", created_us=5)  # its name is free again, and the operation's id is another

    def test_a_version_that_got_ready_while_the_last_one_went_becomes_the_default(self, shed: Shed) -> None:
        gone, begun = shed.deleting(shed.ready("v1"))
        shed.ready("v2", created_us=2)
        shed.models.remove_version(gone, begun.succeeded(EMPTY, now_us=9))
        assert shed.models.get("shed", "m").default_version == "v2"

    def test_what_is_to_be_served(self, shed: Shed) -> None:
        shed.models.add(model("empty"))
        shed.models.add(model("n", project="other"))
        shed.ready("v1")
        shed.deleting(shed.ready("v2", created_us=2))
        failed, _ = shed.creating("v3", created_us=3)
        shed.models.add_version(version("w1", model_id="n", project="other", created_us=4), operation(project="other"))
        shed.models.record_version(failed.to(FAILED, error="no"))
        found = shed.models.versions_to_serve()
        assert found.unreadable == []
        assert [(v.project, v.model, v.id, v.state.value) for v in found.values] == [
            ("shed", "m", "v1", "READY"),
            ("shed", "m", "v2", "DELETING"),
            ("other", "n", "w1", "CREATING"),
        ]

    def test_an_unreadable_version_has_a_clear_error_and_holds_up_no_other(
        self, shed: Shed, database: Database
    ) -> None:
        for number in (1, 2, 3):
            shed.ready(f"v{number}", created_us=number)
        gone, begun = shed.deleting(shed.models.version("shed", "m", "v3"))
        with database.write() as tx:
            tx.run(sa.text("update versions set details = '[' where id = 'v2'"))
        with pytest.raises(DataLossError, match="version v2 of model m of project shed in the database can't be read"):
            shed.models.version("shed", "m", "v2")
        with pytest.raises(DataLossError, match="version v2"):
            shed.models.remove("shed", "m", operation("delete_m-1"))
        of_model = shed.models.get("shed", "m")
        assert [v.id for v in shed.models.versions("shed", "m")] == ["v1", "v3"]
        assert [v.id for v in shed.models.page_versions(of_model, before=START, limit=2)] == ["v3", "v1"]
        served = shed.models.versions_to_serve()
        assert ([v.id for v in served.values], [row["id"] for row in served.unreadable]) == (["v1", "v3"], ["v2"])
        shed.models.remove_version(gone, begun.succeeded(EMPTY, now_us=9))
        assert [v.id for v in shed.models.versions("shed", "m")] == ["v1"]
        with database.write() as tx:
            tx.run(sa.text("update versions set state = 'LOST' where id = 'v2'"))
        assert [line.id for line in shed.models.version_lines("shed")] == ["v1"]

    def test_an_unreadable_model_has_a_clear_error_and_lists_have_all_others(
        self, shed: Shed, database: Database
    ) -> None:
        shed.ready("v1")
        for number in range(3):
            shed.models.add(model(f"n{number}", created_us=2 + number))
        with database.write() as tx:
            tx.run(sa.text("update models set body = '[' where id in ('n1', 'n2')"))
        with pytest.raises(DataLossError, match="model n1 of project shed in the database can't be read"):
            shed.models.get("shed", "n1")
        assert [each.id for each in shed.models.every()] == ["m", "n0"]
        page = shed.models.page("shed", before=START, limit=2)
        assert [(each.id, each.default.id if each.default else "") for each in page] == [("n0", ""), ("m", "v1")]

    def test_files_are_used_as_long_as_a_version_has_them(self, shed: Shed) -> None:
        assert not shed.models.files_used("shed", "f00")
        first, second = shed.ready("v1"), shed.ready("v2", created_us=2)
        shed.remove(second)
        assert shed.models.files_used("shed", "f00")
        assert not shed.models.files_used("other", "f00")
        assert not shed.models.files_used("shed", "f00", besides=first)
        shed.remove(first)
        assert not shed.models.files_used("shed", "f00")

    def test_pages_are_newest_first(self, shed: Shed) -> None:
        for number in range(4):
            shed.creating(f"v{number}", created_us=number // 2)
        found = shed.models.get("shed", "m")
        first = shed.models.page_versions(found, before=START, limit=3)
        rest = shed.models.page_versions(found, before=(first[-1].created_us, first[-1].id), limit=3)
        assert [v.id for v in (*first, *rest)] == ["v3", "v2", "v1", "v0"]
        assert [v.id for v in shed.models.versions("shed", "m")] == ["v0", "v1", "v2", "v3"]

    def test_a_default_is_never_set_to_a_version_that_is_going(self, shed: Shed) -> None:
        """A delete and a set-default of the same version at once: one of them is refused."""
        shed.ready("v1")
        for number in range(8):
            name = f"w{number}"
            shed.ready(name, created_us=2 + number)

            rivals = [rival(side, name) for side in (0, 1)]
            results = at_once(2, partial(shed.against, rivals))
            assert sum(isinstance(result, FailedPreconditionError) for result in results) == 1
            found, chosen = shed.models.version_listed("shed", "m", name)
            assert (found.default_version == name) == (chosen.state is READY)


def rival(side: int, name: str) -> Callable[[Model, Sequence[Version]], ModelChange]:
    """Delete a version, or make it the default."""

    def decide(found: Model, versions: Sequence[Version]) -> ModelChange:
        [chosen] = [v for v in versions if v.id == name]
        if side:
            return ModelChange(model=found.with_default(chosen))
        found.check_can_lose(chosen, versions)
        return ModelChange(version=chosen.to(DELETING))

    return decide


@pytest.mark.fault("F17")
def test_a_database_of_the_first_schema_moves_up(bare_database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    database, first = bare_database, database_module._migrations()[:1]
    with monkeypatch.context() as patch:
        patch.setattr(database_module, "_migrations", lambda: first)
        database.migrate()
    assert database.version() == 1
    ProjectStore(database).ensure("shed", now_us=1)
    database.migrate()
    assert database.version() == len(database_module._migrations()) >= 2
    assert ProjectStore(database).find("shed") is not None
    store = ModelStore(database)
    store.add(model())
    assert store.get("shed", "m") == model()


@pytest.mark.fault("F09")
def test_models_and_versions_are_in_the_order_of_their_creation_whatever_the_clock_says(database: Database) -> None:
    store = ModelStore(database)
    for name, created_us in (("c", 9_000_000), ("b", 5_000_000), ("a", 5_000_001)):
        store.add(model(name, created_us=created_us))
    assert [each.id for each in store.page("shed", before=START, limit=9)] == ["a", "b", "c"]
    first = store.page("shed", before=START, limit=1)[0]
    assert [each.id for each in store.page("shed", before=(first.order_us, first.id), limit=9)] == ["b", "c"]
    for name, created_us in (("v3", 9_000_000), ("v2", 5_000_000), ("v1", 5_000_001)):
        begun = Operation.begin("shed", f"create_{name}", {}, now_us=created_us)
        store.add_version(version(name, model_id="c", created_us=created_us), begun)
    listed = store.page_versions(store.get("shed", "c"), before=START, limit=9)
    assert [each.id for each in listed] == ["v1", "v2", "v3"]
    assert [each.id for each in store.versions("shed", "c")] == ["v3", "v2", "v1"]
