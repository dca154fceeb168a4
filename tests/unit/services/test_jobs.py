"""Creating, listing, changing and cancelling jobs, on a real database and without a control loop."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from trainshed.attempts.batch_progress import BatchProgress
from trainshed.config import Home
from trainshed.domain.capacity.machine_types import STANDARD
from trainshed.domain.iam import Principal, Role
from trainshed.domain.image_registries import DEFAULT_REGISTRIES, ImageRegistries
from trainshed.domain.jobs.gang import shortfall
from trainshed.domain.jobs.job import Job
from trainshed.domain.jobs.states import JobState
from trainshed.domain.jobs.training import Training
from trainshed.domain.jobs.workload import Workload
from trainshed.domain.models.model import Model
from trainshed.domain.models.version import Version
from trainshed.domain.models.version_details import VersionDetails
from trainshed.domain.operations import Operation
from trainshed.domain.policies import JOBS
from trainshed.domain.tuning.trial import TrialOutcome
from trainshed.domain.work_budget import WorkBudget, WorkLimits
from trainshed.errors import (
    AbortedError,
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    RequestCancelledError,
)
from trainshed.runtimes.resolution import RuntimeChoice
from trainshed.services.access.policies import Policies
from trainshed.services.access.quotas import Quotas
from trainshed.services.access.secret_key import SecretKey
from trainshed.services.access.secrets import Secrets
from trainshed.services.jobs.cancellations import Cancellations
from trainshed.services.jobs.failures import Failures
from trainshed.services.jobs.jobs import JobChecks, Jobs
from trainshed.services.jobs.reports import JobReports
from trainshed.services.jobs.tuning import TuningJobs
from trainshed.services.paging import PageRequest
from trainshed.store.access.quotas import QuotaStore
from trainshed.store.access.secrets import SecretStore
from trainshed.store.database import Database
from trainshed.store.jobs import JobStore
from trainshed.store.models import ModelStore
from trainshed.store.policies import PolicyStore
from trainshed.store.tuning.trials import TrialStore
from trainshed.testing.fakes.attempts import FakeAttempts
from trainshed.testing.fakes.databases import migrated_database
from trainshed.testing.fakes.deployments import FakeDeployments
from trainshed.testing.fakes.queues import job_queue
from trainshed.testing.workloads.bucket_objects import uri_checker

BUCKETS = {"in-cloud": "shed", "mine": "shed", "theirs": "other-shed"}
OBJECTS = {("mine", "trainer.tar.gz"), ("theirs", "trainer.tar.gz")}


class TwoRuntimes:
    """A `RuntimeResolver` that knows 2.15 and 2.21."""

    def resolve(self, runtime_version: str | None, python_version: str | None, *, what: str = "job") -> RuntimeChoice:
        if runtime_version == "9.9":
            raise InvalidArgumentError("There is no runtime 9.9 or newer.", field="training_input.runtime_version")
        if runtime_version == "1.2":
            return RuntimeChoice("2.15", ("Runtime 1.2 is not offered any more.",))
        return RuntimeChoice("2.21")


class IdleScheduler:
    """A `Scheduler` that starts nothing, with every engine that is named. `woken` counts its wakeups."""

    def __init__(self, jobs: JobStore) -> None:
        self.woken = 0
        self.queue = job_queue(jobs)

    def positions(self, jobs: Iterable[Job]) -> Mapping[tuple[str, str], int]:
        return self.queue.positions(jobs)

    def next_of(self, project: str, *, limit: int) -> Sequence[tuple[str, int]]:
        return self.queue.next_of(project, ("local", "far"), limit=limit)

    def wake(self) -> None:
        self.woken += 1

    def choose_engine(self, labels: Mapping[str, str], workload: Workload) -> str:
        return labels.get("trainshed-engine", "local")

    def shortfall(self, engine: str, training: Training) -> str:
        return shortfall(training, cpus=4) if engine == "local" else ""

    def quota_reason(self, job: Job) -> str:
        return ""

    def pending_reason(self, job: Job) -> str:
        return "3 of this machine's 8 places are free"

    def outage(self, job: Job) -> str:
        return "The far place has not answered since noon." if job.engine == "far" else ""


class IdleTuning:
    """A `TuningControl` that starts nothing."""

    def wake(self) -> None:
        pass

    def current(self, job: Job) -> TrialOutcome | None:
        return None


class Shed:
    """The service, its store, and what it reaches through its ports. Model digits has a version with runtime 2.15."""

    def __init__(self, database: Database, folder: Path) -> None:
        self.store = JobStore(database)
        self.policies = Policies(PolicyStore(database), JOBS, self.store.get)
        self.scheduler = IdleScheduler(self.store)
        self.attempts = FakeAttempts()
        self.now = 1_000_000
        checks = JobChecks(
            runtimes=TwoRuntimes(),
            uri_checker=uri_checker(database, folder, BUCKETS, OBJECTS, {"in-cloud": "s3://lab-data"}),
            models=_models_with_digits(database),
            machines=STANDARD,
            registries=ImageRegistries.parse(DEFAULT_REGISTRIES),
            quotas=Quotas(QuotaStore(database)),
            secrets=Secrets(SecretStore(database), SecretKey(folder / "secret-key")),
        )
        reports = JobReports(attempts=self.attempts, progress=self.attempts, failures=Failures(Home(folder)))
        self.tuning = TuningJobs(self.store, TrialStore(database, self.store), IdleTuning(), clock=self.tick)
        self.jobs = Jobs(self.store, self.scheduler, checks, reports, self.tuning, clock=self.tick)

    def tick(self) -> int:
        self.now += 1
        return self.now

    def create(self, job_id: str = "j1", **changes: Any) -> dict[str, Any]:
        return self.jobs.create("shed", body(job_id, **changes))

    def in_state(self, job_id: str, *states: JobState) -> Job:
        self.create(job_id)
        return self.move(job_id, *states)

    def move(self, job_id: str, *states: JobState) -> Job:
        for state in states:
            self.store.record(self.store.get("shed", job_id).to(state, now_us=self.tick()))
        return self.store.get("shed", job_id)

    def texts(self, job_id: str) -> list[str]:
        return [event.message for event in self.store.events("shed", job_id)]


def _models_with_digits(database: Database) -> ModelStore:
    models = ModelStore(database)
    models.add(Model(project="shed", id="digits", body={}, created_us=1))
    details = VersionDetails(runtime="2.15")
    version = Version(project="shed", model="digits", id="v1", body={}, details=details, created_us=1)
    models.add_version(version, Operation.begin("shed", "create_digits_v1-1", {}, now_us=1))
    FakeDeployments(database).wake()
    return models


def body(job_id: str, **changes: Any) -> dict[str, Any]:
    given = {"packageUris": ["gs://mine/trainer.tar.gz"], "pythonModule": "trainer.task", **changes}
    return {"jobId": job_id, "trainingInput": given}


@pytest.fixture
def shed(tmp_path: Path) -> Iterator[Shed]:
    database = migrated_database(tmp_path / "state.db")
    yield Shed(database, tmp_path)
    database.close()


def test_a_new_job_is_queued_with_its_history(shed: Shed) -> None:
    made = shed.create(runtimeVersion="1.2", scheduling={"priority": 3})
    assert made["state"] == "QUEUED"
    assert made["jobPosition"] == "1"
    assert made["trainingInput"]["runtimeVersion"] == "1.2"
    assert made == shed.jobs.get("shed", "j1")
    assert shed.texts("j1") == [
        "Validating job requirements...",
        "Job creation request has been successfully validated.",
        "Runtime 1.2 is not offered any more.",
        "Job j1 is queued.",
    ]
    details = shed.jobs.details("shed", "j1")
    assert (details["runtime"], details["notes"]) == ("2.15", ["Runtime 1.2 is not offered any more."])
    assert details["waiting"].startswith("It is next")
    assert shed.store.get("shed", "j1").priority == 3
    assert shed.scheduler.woken == 1


def test_a_name_is_used_once(shed: Shed) -> None:
    shed.create()
    with pytest.raises(AlreadyExistsError) as caught:
        shed.create()
    assert (caught.value.field, str(caught.value)) == ("job.job_id", "A job with this id already exists.")


@pytest.mark.fault("F63")
@pytest.mark.parametrize(
    "uri", ["gs://absent/trainer.tar.gz", "gs://theirs/trainer.tar.gz", "gs://mine/absent", "gs://mine"]
)
def test_a_package_must_be_there_and_ones_own(shed: Shed, uri: str) -> None:
    with pytest.raises(FailedPreconditionError, match="The provided GCS paths cannot be read") as caught:
        shed.create(packageUris=["gs://mine/trainer.tar.gz", uri])
    assert caught.value.field == "package_uris"
    assert uri in str(caught.value)


@pytest.mark.fault("F63")
@pytest.mark.parametrize("bucket", ["absent", "theirs"])
def test_a_job_dir_must_be_in_a_bucket_of_ones_own(shed: Shed, bucket: str) -> None:
    with pytest.raises(FailedPreconditionError) as caught:
        shed.create(jobDir=f"gs://{bucket}/out")
    assert str(caught.value).startswith(f"The bucket gs://{bucket} does not exist in project shed.")
    assert shed.create(jobDir="gs://mine/out/")["trainingInput"]["jobDir"] == "gs://mine/out/"


@pytest.mark.parametrize(
    "uri", ["/etc/passwd", "gs://mine/../theirs/x", "gs://mine/a//b", "http://127.0.0.1/x", "gs://"]
)
def test_what_is_no_address_in_a_bucket_is_refused_by_field(shed: Shed, uri: str) -> None:
    for field, changes in (("package_uris", {"packageUris": [uri]}), ("job_dir", {"jobDir": uri})):
        with pytest.raises(InvalidArgumentError) as caught:
            shed.create(**changes)
        assert caught.value.field == field


def test_a_bad_runtime_fails_at_submit(shed: Shed) -> None:
    with pytest.raises(InvalidArgumentError, match=r"9\.9"):
        shed.create(runtimeVersion="9.9")
    with pytest.raises(NotFoundError):
        shed.jobs.get("shed", "j1")


def test_positions_follow_the_queue(shed: Shed) -> None:
    shed.create("first")
    shed.create("second")
    shed.create("urgent", scheduling={"priority": 9})
    shed.in_state("gone", JobState.PREPARING)
    listed = shed.jobs.page("shed", PageRequest(size=20)).items
    assert [(job["jobId"], job.get("jobPosition")) for job in listed] == [
        ("gone", None),
        ("urgent", "1"),
        ("second", "3"),
        ("first", "2"),
    ]
    assert all(job == shed.jobs.get("shed", job["jobId"]) for job in listed)
    assert "2 jobs go before it" in shed.jobs.details("shed", "second")["waiting"]


class TestCancel:
    def test_a_queued_job_ends_at_once(self, shed: Shed) -> None:
        shed.create()
        shed.jobs.cancel("shed", "j1", user="ann")
        job = shed.jobs.get("shed", "j1")
        assert (job["state"], job["errorMessage"]) == ("CANCELLED", "The job was cancelled by ann.")
        assert "endTime" in job
        assert "jobPosition" not in job
        assert shed.texts("j1")[-1] == "Job cancelled."

    @pytest.mark.parametrize("states", [[JobState.PREPARING], [JobState.PREPARING, JobState.RUNNING]])
    def test_a_job_with_processes_is_told_to_end(self, shed: Shed, states: list[JobState]) -> None:
        shed.in_state("j1", *states)
        woken = shed.scheduler.woken
        shed.jobs.cancel("shed", "j1", user="ann")
        assert shed.jobs.get("shed", "j1")["state"] == "CANCELLING"
        assert shed.scheduler.woken == woken + 1
        before = shed.store.get("shed", "j1")
        shed.jobs.cancel("shed", "j1", user="bob")
        assert shed.store.get("shed", "j1") == before

    @pytest.mark.parametrize("end", [JobState.SUCCEEDED, JobState.FAILED, JobState.CANCELLED])
    def test_a_job_that_ended_stays_so(self, shed: Shed, end: JobState) -> None:
        ended = shed.in_state("j1", JobState.PREPARING, end)
        for _ in range(2):
            with pytest.raises(FailedPreconditionError, match=f"has ended \\({end}\\)"):
                shed.jobs.cancel("shed", "j1", user="ann")
        assert shed.store.get("shed", "j1") == ended

    def test_the_jobs_of_a_user_end_with_the_user(self, shed: Shed) -> None:
        for job_id, user, states in (
            ("queued", "ann", ()),
            ("running", "ann", (JobState.PREPARING, JobState.RUNNING)),
            ("done", "ann", (JobState.PREPARING, JobState.SUCCEEDED)),
            ("other", "bob", ()),
        ):
            shed.jobs.create("shed", body(job_id), user=user)
            shed.move(job_id, *states)
        cancellations = Cancellations(shed.store, shed.scheduler, shed.tuning, clock=shed.tick)
        assert cancellations.of_user("ann", "root") == 2
        after = {job_id: shed.jobs.get("shed", job_id)["state"] for job_id in ("queued", "running", "done", "other")}
        assert after == {"queued": "CANCELLED", "running": "CANCELLING", "done": "SUCCEEDED", "other": "QUEUED"}
        told = "The job was cancelled because root disabled its user, ann."
        assert shed.jobs.get("shed", "queued")["errorMessage"] == told
        before = shed.store.get("shed", "running")
        assert before.failure is not None
        assert before.failure.facts == {"by": "root", "disabled_user": "ann"}
        cancellations.of_user("ann", "root")
        assert shed.store.get("shed", "running") == before

    def test_many_at_once_write_one_end(self, shed: Shed) -> None:
        shed.create()

        def cancel(_: int) -> str:
            try:
                shed.jobs.cancel("shed", "j1", user="ann")
            except FailedPreconditionError:
                return "too late"
            return "done"

        with ThreadPoolExecutor(8) as pool:
            results = list(pool.map(cancel, range(8)))
        assert results.count("done") == 1
        assert shed.texts("j1").count("Job cancelled.") == 1


class TestPatch:
    def test_labels_are_replaced_as_a_whole(self, shed: Shed) -> None:
        shed.create()
        shed.jobs.patch("shed", "j1", mask="labels", body={"labels": {"a": "1", "b": "2"}})
        changed = shed.jobs.patch("shed", "j1", mask="labels", body={"labels": {"c": "3"}})
        assert changed["labels"] == {"c": "3"}
        assert "labels" not in shed.jobs.patch("shed", "j1", mask="labels", body={})

    def test_one_label_can_be_set_or_taken_away(self, shed: Shed) -> None:
        shed.create()
        shed.jobs.patch("shed", "j1", mask="labels", body={"labels": {"a": "1", "b": "2"}})
        changed = shed.jobs.patch("shed", "j1", mask="labels.a,labels.b", body={"labels": {"a": "9", "c": "3"}})
        assert changed["labels"] == {"a": "9"}

    def test_an_etag_that_is_not_current_changes_nothing(self, shed: Shed) -> None:
        old = shed.create()
        new = shed.jobs.patch("shed", "j1", mask="labels,etag", body={"labels": {"a": "1"}, "etag": old["etag"]})
        assert new["etag"] != old["etag"]
        for etag in (old["etag"], "", "%%%", "AAAA"):
            with pytest.raises(AbortedError):
                shed.jobs.patch("shed", "j1", mask="labels", body={"labels": {}, "etag": etag})
        assert shed.jobs.get("shed", "j1") == new

    def test_a_job_stays_on_its_engine(self, shed: Shed) -> None:
        shed.jobs.create("shed", body("j1") | {"labels": {"trainshed-engine": "far"}})
        assert shed.store.get("shed", "j1").engine == "far"
        for labels in ({"trainshed-engine": "local"}, {}):
            with pytest.raises(FailedPreconditionError, match="is on engine far, and stays there"):
                shed.jobs.patch("shed", "j1", mask="labels", body={"labels": labels})
        shed.jobs.patch("shed", "j1", mask="labels.a", body={"labels": {"a": "1"}})

    @pytest.mark.parametrize("mask", ["", ",", "state", "labels,trainingInput.args", "*"])
    def test_only_labels_can_be_changed(self, shed: Shed, mask: str) -> None:
        shed.create()
        with pytest.raises(InvalidArgumentError) as caught:
            shed.jobs.patch("shed", "j1", mask=mask, body={"labels": {}})
        assert caught.value.field == "update_mask"

    def test_a_whole_job_may_be_sent_back(self, shed: Shed) -> None:
        job = shed.create()
        changed = shed.jobs.patch("shed", "j1", mask="labels", body={**job, "labels": {"a": "1"}})
        assert changed["labels"] == {"a": "1"}


class TestPages:
    def fill(self, shed: Shed, count: int) -> None:
        for number in range(count):
            shed.create(f"j{number:05d}", region="us-central1" if number % 10 else "rare-1")

    def ids(self, shed: Shed, *, size: int, query: str = "") -> list[list[str]]:
        pages: list[list[str]] = []
        after = None
        while True:
            page = shed.jobs.page("shed", PageRequest(size=size, after=after, query=query))
            pages.append([job["jobId"] for job in page.items])
            if (after := page.next) is None:
                return pages

    def test_all_jobs_once_newest_first(self, shed: Shed) -> None:
        self.fill(shed, 25)
        assert self.ids(shed, size=10) == [
            [f"j{n:05d}" for n in range(24, 14, -1)],
            [f"j{n:05d}" for n in range(14, 4, -1)],
            [f"j{n:05d}" for n in range(4, -1, -1)],
        ]
        assert [len(page) for page in self.ids(shed, size=25)] == [25]

    def test_a_filter_picks_over_pages(self, shed: Shed) -> None:
        self.fill(shed, 40)
        pages = self.ids(shed, size=3, query="trainingInput.region=rare-1 AND state:QUEUED")
        assert pages == [["j00030", "j00020", "j00010"], ["j00000"]]
        assert self.ids(shed, size=3, query="jobId=j0003* AND state=FAILED") == [[]]

    def test_a_filter_looks_through_a_bounded_number_of_jobs(self, shed: Shed, monkeypatch: pytest.MonkeyPatch) -> None:
        self.fill(shed, 30)
        monkeypatch.setattr("trainshed.services.paging.SCAN_ROWS", 5)
        monkeypatch.setattr("trainshed.services.paging.MAX_SCAN_ROWS", 10)
        pages = self.ids(shed, size=5, query="trainingInput.region=rare-1")
        assert [job for page in pages for job in page] == ["j00020", "j00010", "j00000"]
        assert len(pages) == 4

    def test_a_filter_that_makes_no_sense_is_refused(self, shed: Shed) -> None:
        with pytest.raises(InvalidArgumentError) as caught:
            shed.jobs.page("shed", PageRequest(size=5, query="state="))
        assert caught.value.field == "filter"


class TestPolicies:
    VIEWER = Principal(user="ann", project="shed", role=Role.VIEWER)

    def policy(self, *members: str, role: str = "roles/ml.jobOwner", **more: Any) -> dict[str, Any]:
        return {"policy": {"bindings": [{"role": role, "members": list(members)}], **more}}

    def test_a_binding_adds_to_what_the_token_may_do(self, shed: Shed) -> None:
        shed.create()
        asked = {"permissions": ["ml.jobs.get", "ml.jobs.cancel", "ml.jobs.create"]}
        assert shed.policies.test("shed", "j1", self.VIEWER, asked) == {"permissions": ["ml.jobs.get"]}
        shed.policies.set("shed", "j1", self.policy("user:ann"))
        assert shed.policies.test("shed", "j1", self.VIEWER, asked) == {
            "permissions": ["ml.jobs.get", "ml.jobs.cancel"]
        }
        shed.policies.set("shed", "j1", self.policy("user:bob"))
        assert shed.policies.test("shed", "j1", self.VIEWER, asked) == {"permissions": ["ml.jobs.get"]}

    def test_bindings_of_one_role_become_one(self, shed: Shed) -> None:
        shed.create()
        binding = {"role": "roles/ml.viewer", "members": ["user:ann"]}
        other = {"role": "roles/ml.viewer", "members": ["allAuthenticatedUsers", "user:ann"]}
        written = shed.policies.set("shed", "j1", {"policy": {"bindings": [binding, other]}})
        assert written["bindings"] == [{"role": "roles/ml.viewer", "members": ["user:ann", "allAuthenticatedUsers"]}]
        assert shed.policies.get("shed", "j1") == written

    def test_an_old_etag_changes_nothing(self, shed: Shed) -> None:
        shed.create()
        first = shed.policies.get("shed", "j1")
        second = shed.policies.set("shed", "j1", self.policy("user:ann", etag=first["etag"]))
        with pytest.raises(AbortedError):
            shed.policies.set("shed", "j1", self.policy("user:bob", etag=first["etag"]))
        assert shed.policies.get("shed", "j1") == second

    def test_a_mask_without_bindings_leaves_them(self, shed: Shed) -> None:
        shed.create()
        written = shed.policies.set("shed", "j1", self.policy("user:ann"))
        kept = shed.policies.set("shed", "j1", {"policy": {}, "updateMask": "etag"})
        assert kept["bindings"] == written["bindings"]

    @pytest.mark.parametrize(
        ("request_body", "field"),
        [
            ({}, "policy"),
            ({"policy": {"bindings": [{"role": "roles/owner", "members": ["user:a"]}]}}, "policy.bindings[0].role"),
            ({"policy": {"bindings": [{"role": "roles/ml.viewer", "members": []}]}}, "policy.bindings[0].members"),
            ({"policy": {"bindings": [{"role": "roles/ml.viewer", "members": ["ann"]}]}}, "policy.bindings[0].members"),
            (
                {"policy": {"bindings": [{"role": "roles/ml.viewer", "members": ["user:"]}]}},
                "policy.bindings[0].members",
            ),
            (
                {"policy": {"bindings": [{"role": "roles/ml.viewer", "condition": {"x": 1}}]}},
                "policy.bindings[0].condition",
            ),
            ({"policy": {"version": 2}}, "policy.version"),
            ({"policy": {"auditConfigs": [{}]}}, "policy.audit_configs"),
            ({"policy": {}, "updateMask": "owner"}, "update_mask"),
            ({"policy": {"binding": []}}, "policy"),
        ],
    )
    def test_a_policy_that_makes_no_sense_is_refused(
        self, shed: Shed, request_body: dict[str, Any], field: str
    ) -> None:
        shed.create()
        with pytest.raises(InvalidArgumentError) as caught:
            shed.policies.set("shed", "j1", request_body)
        assert caught.value.field == field

    def test_a_job_that_is_not_there_has_no_policy_and_no_permissions(self, shed: Shed) -> None:
        with pytest.raises(NotFoundError):
            shed.policies.get("shed", "none")
        with pytest.raises(NotFoundError):
            shed.policies.set("shed", "none", self.policy("user:ann"))
        assert shed.policies.test("shed", "none", self.VIEWER, {"permissions": ["ml.jobs.get"]}) == {}

    @pytest.mark.parametrize("permission", ["*", "ml.jobs.*", "storage.objects.get", ""])
    def test_a_permission_that_no_job_has_is_refused(self, shed: Shed, permission: str) -> None:
        with pytest.raises(InvalidArgumentError):
            shed.policies.test("shed", "j1", self.VIEWER, {"permissions": [permission]})


def prediction(job_id: str = "p1", **changes: Any) -> dict[str, Any]:
    given = {
        "dataFormat": "JSON",
        "inputPaths": ["gs://mine/*.gz"],
        "outputPath": "gs://mine/out",
        "modelName": "projects/shed/models/digits",
        **changes,
    }
    return {"jobId": job_id, "predictionInput": {name: value for name, value in given.items() if value is not None}}


def test_a_batch_prediction_counts_its_rows(shed: Shed) -> None:
    made = shed.jobs.create("shed", prediction())
    assert made["predictionOutput"] == {
        "outputPath": "gs://mine/out",
        "predictionCount": "0",
        "errorCount": "0",
        "nodeHours": 0.0,
    }
    assert "trainingOutput" not in made
    assert shed.store.get("shed", "p1").runtime == "2.15"
    shed.attempts.predicted = BatchProgress(predictions=1200, errors=1, read=40, bytes=100)
    shown = shed.jobs.details("shed", "p1")
    assert shown["job"]["predictionOutput"]["predictionCount"] == "1200"
    assert shown["notes"] == ["40% of the input is read: 1,200 rows were predicted, one had an error."]
    assert [found["predictionOutput"]["errorCount"] for found in shed.jobs.page("shed", PageRequest(size=5)).items] == [
        "1"
    ]


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"modelName": "projects/shed/models/letters"}, NotFoundError, "no model letters"),
        ({"modelName": "projects/other-shed/models/digits"}, NotFoundError, "no model digits in project other-shed"),
        ({"inputPaths": ["gs://mine/*.json"]}, FailedPreconditionError, r"No object matches gs://mine/\*.json"),
        ({"inputPaths": ["gs://theirs/*"]}, FailedPreconditionError, "No object matches gs://theirs"),
        ({"inputPaths": ["/etc/passwd"]}, InvalidArgumentError, "gs://"),
        ({"outputPath": "gs://theirs/out"}, FailedPreconditionError, "gs://theirs does not exist in project shed"),
        ({"outputPath": "gs://in-cloud/out"}, FailedPreconditionError, "gs://in-cloud/out is kept in s3://lab-data"),
        ({"modelName": None, "uri": "gs://theirs/model"}, FailedPreconditionError, "no files in gs://theirs/model"),
    ],
)
def test_a_batch_prediction_of_what_is_not_there(
    shed: Shed, changes: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        shed.jobs.create("shed", prediction(**changes))
    assert shed.scheduler.woken == 0


@pytest.mark.parametrize(
    "request_body",
    [
        prediction(inputPaths=["gs://mine/*.json"]),
        prediction(modelName=None, uri="gs://mine/model"),
        prediction(),
        body("j1"),
    ],
    ids=["a pattern", "a folder", "all is there", "packages"],
)
def test_checks_that_nobody_waits_for_stop_and_store_nothing(shed: Shed, request_body: dict[str, Any]) -> None:
    budget = WorkBudget(WorkLimits(max_bytes=1 << 40, max_seconds=600))
    budget.cancel()
    with pytest.raises(RequestCancelledError):
        shed.jobs.create("shed", request_body, budget)
    assert shed.jobs.page("shed", PageRequest(size=5)).items == []


@pytest.mark.parametrize(
    ("request_body", "slow"),
    [
        (prediction(), True),
        (body("j1"), False),
        (body("j1", packageUris=["gs://mine/a.tar.gz", "gs://in-cloud/a.tar.gz"]), True),
        (body("j1", packageUris=["s3://mine", 5, None]), False),
        ({"trainingInput": 5}, False),
        ({"trainingInput": {"packageUris": 5}}, False),
    ],
)
def test_checks_that_may_take_long_are_known_before(shed: Shed, request_body: dict[str, Any], slow: bool) -> None:
    assert shed.jobs.has_slow_checks(request_body) is slow


def test_a_job_whose_place_does_not_answer_says_so(shed: Shed) -> None:
    shed.jobs.create("shed", body("j1") | {"labels": {"trainshed-engine": "far"}})
    assert shed.jobs.details("shed", "j1")["waiting"].endswith("starts whole: 3 of this machine's 8 places are free.")
    shed.store.record(shed.store.get("shed", "j1").to(JobState.PREPARING, now_us=shed.tick()))
    assert shed.jobs.details("shed", "j1")["waiting"] == "The far place has not answered since noon."


@pytest.mark.parametrize("role", ["master", "worker"])
def test_an_image_of_an_unknown_registry_is_refused(shed: Shed, role: str) -> None:
    images = {"masterConfig": {"imageUri": "docker.io/me/trainer"}}
    images[f"{role}Config"] = {"imageUri": "127.0.0.1:22/trainer"}
    training = {"region": "us-central1", "scaleTier": "CUSTOM", "masterType": "n1-standard-4", **images}
    if role == "worker":
        training |= {"workerCount": "1", "workerType": "n1-standard-4"}
    with pytest.raises(InvalidArgumentError, match="setting image_registries allows") as refused:
        shed.jobs.create("shed", {"jobId": "j1", "trainingInput": training})
    assert refused.value.field == f"{role}_config.image_uri"


def test_a_clock_that_goes_back_changes_no_order_and_makes_no_time_negative(shed: Shed) -> None:
    hour_us = 3_600_000_000
    shed.now = 10 * hour_us
    shed.in_state("b_old", JobState.PREPARING, JobState.RUNNING)
    shed.now -= hour_us
    shed.create("a_new")
    ended = shed.move("b_old", JobState.SUCCEEDED)
    shed.move("a_new", JobState.PREPARING, JobState.RUNNING, JobState.SUCCEEDED)
    newest, oldest = shed.jobs.page("shed", PageRequest(size=9)).items
    assert (newest["jobId"], oldest["jobId"]) == ("a_new", "b_old")
    first = shed.jobs.page("shed", PageRequest(size=1))
    assert [each["jobId"] for each in shed.jobs.page("shed", PageRequest(size=9, after=first.next)).items] == ["b_old"]
    for each in (newest, oldest):
        assert each["createTime"] <= each["startTime"] <= each["endTime"]
    assert newest["createTime"] < oldest["createTime"], "times are the clock's"
    assert (ended.ended_us or 0) >= (ended.started_us or 0) >= ended.created_us
