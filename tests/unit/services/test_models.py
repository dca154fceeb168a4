"""Models and versions: created, listed, changed and deleted, on a real database and with deployments that obey."""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from trainshed.artifacts.manifest import ArtifactManifest
from trainshed.config import Home
from trainshed.domain.iam import Principal, Role
from trainshed.domain.image_registries import DEFAULT_REGISTRIES, ImageRegistries
from trainshed.domain.policies import MODELS
from trainshed.errors import (
    AbortedError,
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    TrainshedError,
    UnimplementedError,
)
from trainshed.gateway.metrics import VersionMetrics
from trainshed.runtimes.resolution import RuntimeChoice
from trainshed.services.access.policies import Policies
from trainshed.services.access.projects import Projects
from trainshed.services.access.quotas import Quotas
from trainshed.services.access.secret_key import SecretKey
from trainshed.services.access.secrets import Secrets
from trainshed.services.artifacts import VersionArtifacts
from trainshed.services.models.models import Models
from trainshed.services.models.versions import VersionChecks, Versions
from trainshed.services.operations import Operations
from trainshed.services.paging import PageRequest
from trainshed.store.access.quotas import QuotaStore
from trainshed.store.access.secrets import SecretStore
from trainshed.store.database import Database
from trainshed.store.models import ModelStore
from trainshed.store.operations import OperationStore
from trainshed.store.policies import PolicyStore
from trainshed.store.projects import ProjectStore
from trainshed.testing.fakes.databases import migrated_database
from trainshed.testing.fakes.deployments import FakeDeployments
from trainshed.testing.workloads.bucket_objects import uri_checker

BUCKETS = {"mine": "shed", "theirs": "other-shed"}
FILES = {("mine", "export/1/saved_model.pb"), ("theirs", "export/1/saved_model.pb"), ("mine", "code/p-1.0.tar.gz")}
VERSION = {"name": "v1", "deploymentUri": "gs://mine/export/1/"}
MODEL_NAMES, VERSION_NAMES = st.just("m"), st.sampled_from(["v1", "v2"])


class TwoRuntimes:
    """A `RuntimeResolver` that knows 2.15 and 2.21."""

    def resolve(self, runtime_version: str | None, python_version: str | None, *, what: str = "job") -> RuntimeChoice:
        if runtime_version == "9.9":
            raise InvalidArgumentError("There is no runtime 9.9 or newer.", field="training_input.runtime_version")
        if runtime_version == "2.1":
            return RuntimeChoice("2.15", ("Runtime 2.1 is not offered any more.",))
        return RuntimeChoice("2.21")


class AnyEngine:
    """A `HostPlacement` that has every engine that is named."""

    def choose_for_hosts(self, labels: Mapping[str, str], what: str) -> str:
        return labels.get("trainshed-engine", "local")


class Shed:
    """The services, and deployments that can be held up or made to fail."""

    def __init__(self, database: Database, folder: Path) -> None:
        self.now = 1_000_000
        self.metrics = VersionMetrics(clock=lambda: 65.0)
        self.deployments = FakeDeployments(database, clock=self.tick)
        self.store = ModelStore(database)
        self.projects = Projects(ProjectStore(database), default="shed")
        checks = VersionChecks(
            runtimes=TwoRuntimes(),
            placement=AnyEngine(),
            uri_checker=uri_checker(database, folder, BUCKETS, FILES),
            registries=ImageRegistries.parse(DEFAULT_REGISTRIES),
            quotas=Quotas(QuotaStore(database)),
            secrets=Secrets(SecretStore(database), SecretKey(folder / "secret-key")),
        )
        self.models = Models(self.store, self.deployments, self.metrics, self.projects, clock=self.tick)
        self.versions = Versions(self.store, self.deployments, self.metrics, self.projects, checks, clock=self.tick)
        self.operations = Operations(OperationStore(database), wake=self.deployments.wake)
        self.policies = Policies(PolicyStore(database), MODELS, self.store.get)

    def tick(self) -> int:
        self.now += 1_000
        return self.now

    def create(self, version: str = "v1", **changes: Any) -> dict[str, Any]:
        return self.versions.create("shed", "m", {**VERSION, "name": version, **changes})

    def state(self, version: str = "v1") -> str:
        return str(self.versions.get("shed", "m", version)["state"])

    def default(self) -> str:
        return str(self.models.get("shed", "m").get("defaultVersion", {}).get("name", "")).rpartition("/")[2]

    def operation(self, begun: dict[str, Any]) -> dict[str, Any]:
        return self.operations.get("shed", begun["name"].rpartition("/")[2])


@pytest.fixture
def shed(tmp_path: Path) -> Iterator[Shed]:
    database = migrated_database(tmp_path / "state.db")
    made = Shed(database, tmp_path)
    made.models.create("shed", {"name": "m"})
    yield made
    database.close()


class TestModels:
    def test_a_new_model(self, shed: Shed) -> None:
        body = {"name": "n", "description": "Digits", "labels": {"a": "b"}, "onlinePredictionLogging": True}
        made = shed.models.create("shed", body)
        assert made == {
            "name": "projects/shed/models/n",
            "description": "Digits",
            "regions": ["us-central1"],
            "onlinePredictionLogging": True,
            "labels": {"a": "b"},
            "etag": made["etag"],
        }
        assert shed.models.get("shed", "n") == made
        assert shed.deployments.published[-1] == ("shed", "n")
        assert shed.models.details("shed", "n")["notes"] == []

    def test_what_has_no_effect_is_said(self, shed: Shed) -> None:
        shed.models.create("shed", {"name": "n", "onlinePredictionConsoleLogging": True})
        [note] = shed.models.details("shed", "n")["notes"]
        assert "online_prediction_console_logging" in note

    @pytest.mark.parametrize(
        ("body", "field"),
        [
            ({}, "model.name"),
            ({"name": "1m"}, "model.name"),
            ({"name": "a-b"}, "model.name"),
            ({"name": "a" * 129}, "model.name"),
            ({"name": "x", "regions": ["us-central1", "us-east1"]}, "model.regions"),
            ({"name": "x", "regions": ["US"]}, "model.regions"),
            ({"name": "x", "labels": {"A": "b"}}, "model.labels"),
            ({"name": "x", "description": "x" * 70_000}, "model.description"),
            ({"name": "x", "foo": 1}, "model"),
            ({"name": "x", "onlinePredictionLogging": "yes"}, "model.online_prediction_logging"),
        ],
    )
    def test_what_makes_no_sense_is_refused_by_name(self, shed: Shed, body: dict[str, Any], field: str) -> None:
        with pytest.raises(InvalidArgumentError) as caught:
            shed.models.create("shed", body)
        assert caught.value.field == field

    def test_a_name_is_free_again_when_its_model_is_gone(self, shed: Shed) -> None:
        with pytest.raises(AlreadyExistsError) as caught:
            shed.models.create("shed", {"name": "m"})
        assert (caught.value.field, str(caught.value)) == ("model.name", "A model with the same name already exists.")
        shed.policies.set("shed", "m", {"policy": {"bindings": [{"role": "roles/ml.viewer", "members": ["user:a"]}]}})
        gone = shed.models.delete("shed", "m")
        assert gone["done"]
        assert gone["response"] == {"@type": "type.googleapis.com/google.protobuf.Empty"}
        assert gone["name"].startswith("projects/shed/operations/delete_m-")
        assert gone["metadata"]["operationType"] == "DELETE_MODEL"
        assert gone["metadata"]["projectNumber"] == str(shed.projects.number("shed"))
        assert gone["metadata"]["createTime"] <= gone["metadata"]["endTime"]
        with pytest.raises(NotFoundError):
            shed.models.delete("shed", "m")
        shed.models.create("shed", {"name": "m"})
        assert "bindings" not in shed.policies.get("shed", "m")

    def test_a_model_with_versions_stays(self, shed: Shed) -> None:
        shed.create()
        with pytest.raises(FailedPreconditionError, match="has versions"):
            shed.models.delete("shed", "m")

    def test_pages_and_filters(self, shed: Shed) -> None:
        for number in range(3):
            shed.models.create("shed", {"name": f"n{number}", "labels": {"even": str(number % 2 == 0).lower()}})
        first = shed.models.page("shed", PageRequest(size=3))
        rest = shed.models.page("shed", PageRequest(size=3, after=first.next))
        assert [m["name"].rpartition("/")[2] for m in (*first.items, *rest.items)] == ["n2", "n1", "n0", "m"]
        assert rest.next is None
        found = shed.models.page("shed", PageRequest(size=9, query="labels.even=true"))
        assert [m["name"].rpartition("/")[2] for m in found.items] == ["n2", "n0"]
        shed.create()
        found = shed.models.page("shed", PageRequest(size=9, query="defaultVersion.state=READY"))
        assert [m["defaultVersion"]["isDefault"] for m in found.items] == [True]

    def test_a_patch_changes_what_its_mask_names(self, shed: Shed) -> None:
        shed.models.create("shed", {"name": "n", "description": "old", "labels": {"a": "b"}})
        done = shed.models.patch(
            "shed", "n", mask="description,labels.c", body={"description": "new", "labels": {"c": "d"}, "name": "n"}
        )
        assert done["done"]
        assert done["metadata"]["operationType"] == "UPDATE_MODEL"
        assert done["response"]["@type"] == "type.googleapis.com/google.cloud.ml.v1.Model"
        now = shed.models.get("shed", "n")
        assert (now["description"], now["labels"]) == ("new", {"a": "b", "c": "d"})
        assert {key: value for key, value in done["response"].items() if key != "@type"} == now
        shed.models.patch("shed", "n", mask="description,onlinePredictionLogging", body={})
        assert "description" not in shed.models.get("shed", "n")
        assert shed.deployments.published[-1] == ("shed", "n")

    @pytest.mark.parametrize("mask", ["", "name", "regions", "default_version", "defaultVersion.name"])
    def test_a_patch_that_makes_no_sense(self, shed: Shed, mask: str) -> None:
        with pytest.raises(InvalidArgumentError):
            shed.models.patch("shed", "m", mask=mask, body={"name": "z"})

    def test_a_patch_with_an_old_etag_is_aborted(self, shed: Shed) -> None:
        old = shed.models.get("shed", "m")["etag"]
        shed.models.patch("shed", "m", mask="description", body={"description": "x", "etag": old})
        with pytest.raises(AbortedError):
            shed.models.patch("shed", "m", mask="description", body={"description": "y", "etag": old})
        with pytest.raises(InvalidArgumentError):
            shed.models.patch("shed", "m", mask="etag", body={})

    def test_a_patch_sets_the_default(self, shed: Shed) -> None:
        shed.create("v1")
        shed.create("v2")
        for name in ("v2", "projects/shed/models/m/versions/v1"):
            body = {"defaultVersion": {"name": name}}
            shed.models.patch("shed", "m", mask="default_version.name", body=body)
            assert shed.default() == name.rpartition("/")[2]
        with pytest.raises(NotFoundError):
            shed.models.patch("shed", "m", mask="default_version.name", body={"defaultVersion": {"name": "v3"}})


class TestEngines:
    def test_a_version_is_where_its_labels_say_or_those_of_its_model(self, shed: Shed) -> None:
        shed.create("v1")
        shed.create("v2", labels={"trainshed-engine": "ray"})
        shed.models.patch("shed", "m", mask="labels", body={"labels": {"trainshed-engine": "ray"}})
        shed.create("v3")
        shed.create("v4", labels={"trainshed-engine": "local"})
        found = [shed.versions.details("shed", "m", f"v{number}")["engine"] for number in (1, 2, 3, 4)]
        assert found == ["local", "ray", "ray", "local"]

    def test_it_stays_there(self, shed: Shed) -> None:
        shed.create("v1", labels={"trainshed-engine": "ray"})
        with pytest.raises(FailedPreconditionError, match="are on engine ray, and stay there"):
            shed.versions.patch("shed", "m", "v1", mask="labels", body={"labels": {"trainshed-engine": "local"}})
        shed.versions.patch("shed", "m", "v1", mask="labels", body={"labels": {"team": "vision"}})
        assert shed.versions.details("shed", "m", "v1")["engine"] == "ray"


class TestFiles:
    """What a host on another machine fetches."""

    @pytest.fixture
    def files(self, shed: Shed, tmp_path: Path) -> VersionArtifacts:
        home = Home(tmp_path / "home")
        shed.create("v1")
        shed.create("v2")
        folder = home.models / "shed" / "digest"
        folder.mkdir(parents=True)
        (folder / "saved_model.pb").write_bytes(b"graph")
        ArtifactManifest.gather(home.hosts / "shed" / "m" / "v1", folder, [])
        return VersionArtifacts(shed.store, home)

    def test_its_own_fetch_token_gets_them(self, files: VersionArtifacts) -> None:
        digest = hashlib.sha256(b"graph").hexdigest()
        found = files.open(Principal.of_version("shed", "m", "v1"), "shed", "m", "v1", digest)
        assert found.read(0, 10) == b"graph"
        found.close()

    @pytest.mark.parametrize(
        "holder",
        [
            Principal.of_version("shed", "m", "v2"),
            Principal.of_version("shed", "n", "v1"),
            Principal.of_job("shed", "v1", Role.ARTIFACT_READER),
        ],
        ids=lambda holder: holder.user,
    )
    def test_that_of_another_does_not(self, files: VersionArtifacts, holder: Principal) -> None:
        with pytest.raises(PermissionDeniedError):
            files.open(holder, "shed", "m", "v1", hashlib.sha256(b"graph").hexdigest())

    def test_a_version_that_is_served_here_has_none(self, files: VersionArtifacts) -> None:
        with pytest.raises(FailedPreconditionError):
            files.open(Principal.of_version("shed", "m", "v2"), "shed", "m", "v2", "0" * 64)


class TestVersions:
    def test_a_version_is_created_by_an_operation(self, shed: Shed) -> None:
        shed.deployments.hold = True
        begun = shed.create(labels={"a": "b"}, description="first")
        assert "done" not in begun
        assert begun["name"].startswith("projects/shed/operations/create_m_v1-")
        metadata = begun["metadata"]
        assert metadata["operationType"] == "CREATE_VERSION"
        assert metadata["modelName"] == "projects/shed/models/m"
        assert metadata["version"]["deploymentUri"] == VERSION["deploymentUri"]
        assert metadata["labels"] == {"a": "b"}
        assert metadata["projectNumber"] == str(shed.projects.number("shed"))
        assert shed.state() == "CREATING"
        assert shed.default() == ""

        shed.deployments.hold = False
        shed.deployments.wake()
        done = shed.operation(begun)
        assert done["done"]
        assert done["response"]["isDefault"] is True
        assert done["metadata"]["endTime"] > metadata["createTime"]
        shed.metrics.of(("shed", "m", "v1")).add(0.1, ok=True)
        found = shed.versions.get("shed", "m", "v1")
        assert found == {
            "name": "projects/shed/models/m/versions/v1",
            "deploymentUri": "gs://mine/export/1/",
            "description": "first",
            "state": "READY",
            "isDefault": True,
            "labels": {"a": "b"},
            "createTime": found["createTime"],
            "lastUseTime": "1970-01-01T00:01:05.000000Z",
            "etag": found["etag"],
        }
        assert shed.models.get("shed", "m")["defaultVersion"] == found
        details = shed.versions.details("shed", "m", "v1")
        assert details["version"] == found
        assert (details["runtime"], details["loader"], details["hosts"]) == ("2.21", "fake", [{"pid": 7}])
        assert shed.versions.sample("shed", "m", "v1")["instances"] == []
        with pytest.raises(NotFoundError):
            shed.versions.sample("shed", "m", "v9")

    def test_a_failure_is_on_the_version_and_its_operation(self, shed: Shed) -> None:
        shed.deployments.failure = "Create Version failed. Bad model detected with error:  ..."
        begun = shed.create()
        assert shed.operation(begun)["error"] == {"code": 9, "message": shed.deployments.failure}
        assert shed.versions.get("shed", "m", "v1")["errorMessage"] == shed.deployments.failure
        assert shed.default() == ""
        with pytest.raises(AlreadyExistsError):
            shed.create()
        with pytest.raises(FailedPreconditionError, match="FAILED"):
            shed.versions.set_default("shed", "m", "v1")
        shed.deployments.failure = ""
        shed.versions.delete("shed", "m", "v1")
        shed.create()
        assert shed.default() == "v1"

    def test_a_creation_that_is_cancelled(self, shed: Shed) -> None:
        shed.deployments.hold = True
        begun = shed.create()
        shed.deployments.hold = False
        shed.operations.cancel("shed", begun["name"].rpartition("/")[2])
        done = shed.operation(begun)
        assert done["metadata"]["isCancellationRequested"] is True
        assert done["error"]["code"] == 1
        assert shed.state() == "FAILED"

    @pytest.mark.parametrize(
        ("changes", "field"),
        [
            ({"name": ""}, "version.name"),
            ({"name": "v-1"}, "version.name"),
            ({"deploymentUri": ""}, "version.deployment_uri"),
            ({"deploymentUri": "http://127.0.0.1/model"}, "version.deployment_uri"),
            ({"deploymentUri": "file:///etc"}, "version.deployment_uri"),
            ({"deploymentUri": "gs://mine/../theirs"}, "version.deployment_uri"),
            ({"runtimeVersion": "9.9"}, "version.runtime_version"),
            ({"runtimeVersion": "python"}, "version.runtime_version"),
            ({"machineType": "a2-highgpu-1g"}, "version.machine_type"),
            ({"machineType": "enormous"}, "version.machine_type"),
            ({"acceleratorConfig": {"count": "1", "type": "NVIDIA_TESLA_T4"}}, "version.accelerator_config"),
            ({"serviceAccount": "a@b.c"}, "version.service_account"),
            ({"framework": "JAX"}, "version.framework"),
            ({"predictionClass": "p.P"}, "version.package_uris"),
            ({"predictionClass": "p", "packageUris": ["gs://mine/code/p-1.0.tar.gz"]}, "version.prediction_class"),
            (
                {"predictionClass": "p.P", "packageUris": ["gs://mine/code/p-1.0.tar.gz"], "framework": "TENSORFLOW"},
                "version.framework",
            ),
            ({"packageUris": ["gs://mine/code/p-1.0.tar.gz"], "framework": "TENSORFLOW"}, "version.package_uris"),
            ({"packageUris": ["http://127.0.0.1/p"]}, "version.package_uris"),
            ({"manualScaling": {"nodes": 0}}, "version.manual_scaling.nodes"),
            ({"manualScaling": {"nodes": 1}, "autoScaling": {"minNodes": 1}}, "version.manual_scaling"),
            ({"autoScaling": {"minNodes": -1}}, "version.auto_scaling.min_nodes"),
            ({"autoScaling": {"minNodes": 3, "maxNodes": 2}}, "version.auto_scaling.max_nodes"),
            ({"autoScaling": {"metrics": [{"name": "GPU_DUTY_CYCLE", "target": 9}]}}, "version.auto_scaling.metrics"),
            ({"autoScaling": {"metrics": [{"name": "CPU_USAGE"}]}}, "version.auto_scaling.metrics"),
            (
                {"explanationConfig": {"integratedGradientsAttribution": {"numIntegralSteps": 0}}},
                "version.explanation_config.integrated_gradients_attribution.num_integral_steps",
            ),
            (
                {"explanationConfig": {"integratedGradientsAttribution": {}}, "framework": "XGBOOST"},
                "version.explanation_config.integrated_gradients_attribution",
            ),
            (
                {"explanationConfig": {"integratedGradientsAttribution": {}, "sampledShapleyAttribution": {}}},
                "version.explanation_config",
            ),
            (
                {"requestLoggingConfig": {"bigqueryTableName": "p.d.t", "samplingPercentage": 1}},
                "version.request_logging_config.bigquery_table_name",
            ),
            (
                {"requestLoggingConfig": {"bigqueryTableName": "gs://mine/log", "samplingPercentage": 2}},
                "version.request_logging_config.sampling_percentage",
            ),
            ({"foo": 1}, "version"),
            ({"autoScaling": {"foo": 1}}, "version.auto_scaling"),
            ({"labels": {"A": "b"}}, "version.labels"),
            ({"description": "x" * 70_000}, "version"),
        ],
    )
    def test_what_can_not_be_served_is_refused_by_name(self, shed: Shed, changes: dict[str, Any], field: str) -> None:
        with pytest.raises(InvalidArgumentError) as caught:
            shed.create(**changes)
        assert caught.value.field == field
        assert not shed.store.versions("shed", "m")

    @pytest.mark.parametrize(
        ("changes", "word"),
        [
            ({"explanationConfig": {"xraiAttribution": {}}}, "xrai_attribution"),
        ],
    )
    def test_what_is_not_served_is_refused_by_name(self, shed: Shed, changes: dict[str, Any], word: str) -> None:
        with pytest.raises(UnimplementedError, match=word):
            shed.create(**changes)

    def test_what_is_accepted_is_kept(self, shed: Shed) -> None:
        given: dict[str, Any] = {
            "framework": "SCIKIT_LEARN",
            "runtimeVersion": "2.1",
            "pythonVersion": "3.7",
            "machineType": "mls1-c4-m2",
            "autoScaling": {"minNodes": 0, "maxNodes": 3, "metrics": [{"name": "CPU_USAGE", "target": 60}]},
            "packageUris": ["gs://mine/code/p-1.0.tar.gz"],
            "explanationConfig": {"sampledShapleyAttribution": {"numPaths": 10}},
            "requestLoggingConfig": {"bigqueryTableName": "gs://mine/log", "samplingPercentage": 0.1},
        }
        shed.create(**given, acceleratorConfig={}, isDefault=False, state="READY")
        shown = shed.versions.get("shed", "m", "v1")
        assert {name: shown[name] for name in given} == given
        found = shed.store.version("shed", "m", "v1")
        assert (found.nodes, found.runtime, found.framework) == (0, "2.15", "SCIKIT_LEARN")
        assert found.request_logging is not None
        assert (found.request_logging.folder, found.request_logging.share) == ("gs://mine/log", 0.1)
        notes = shed.versions.details("shed", "m", "v1")["notes"]
        assert notes[0] == "Runtime 2.1 is not offered any more."
        assert "machine_type" in notes[1]
        assert "auto_scaling.metrics" in notes[2]

    def test_the_details_say_how_it_scales(self, shed: Shed) -> None:
        shed.create(autoScaling={"minNodes": 0, "maxNodes": 3})
        scaling = shed.versions.details("shed", "m", "v1")["scaling"]
        assert scaling == {"minHosts": 0, "maxHosts": 3, "hosts": 2, "inFlight": 11, "waitsForMemory": False}
        assert shed.versions.details("shed", "m", "v1")["notes"] == []
        shed.create("fixed", autoScaling={"minNodes": 2, "maxNodes": 2})
        assert shed.versions.details("shed", "m", "fixed")["scaling"] is None

    def test_a_version_for_tensorflow_1_is_served_by_the_newest_runtime(self, shed: Shed) -> None:
        shed.create(runtimeVersion="1.14", pythonVersion="3.5", framework="FRAMEWORK_UNSPECIFIED")
        details = shed.versions.details("shed", "m", "v1")
        assert details["runtime"] == "2.21"
        assert details["notes"][0].startswith("Runtime 1.14 is for training.")
        assert details["version"]["runtimeVersion"] == "1.14"
        assert "framework" not in details["version"]

    def test_a_bucket_of_another_project_is_as_good_as_absent(self, shed: Shed) -> None:
        def refused(**changes: Any) -> str:
            with pytest.raises(FailedPreconditionError) as caught:
                shed.create(**changes)
            return f"{caught.value.field}: {caught.value}"

        for place in ("deploymentUri", "packageUris", "requestLoggingConfig"):
            seen = set()
            for bucket in ("theirs", "absent"):
                uri = f"gs://{bucket}/export/1/saved_model.pb"
                value: Any = {
                    "deploymentUri": f"gs://{bucket}/export/1",
                    "packageUris": [uri],
                    "requestLoggingConfig": {"bigqueryTableName": uri, "samplingPercentage": 1},
                }[place]
                seen.add(refused(**{place: value}).replace(bucket, "BUCKET"))
            assert len(seen) == 1, seen
        assert "There are no files in gs://mine/empty" in refused(deploymentUri="gs://mine/empty")
        assert "There are no files in" in refused(deploymentUri="gs://mine/export/1/saved_model.pb")

    def test_where_there_is_no_model_there_is_no_version(self, shed: Shed) -> None:
        with pytest.raises(NotFoundError, match="no model x"):
            shed.versions.create("shed", "x", VERSION)
        with pytest.raises(NotFoundError, match="no model x"):
            shed.versions.page("shed", "x", PageRequest(size=1))
        with pytest.raises(NotFoundError, match="no version v1 of model m"):
            shed.versions.get("shed", "m", "v1")
        with pytest.raises(NotFoundError, match="no version v1 of model m"):
            shed.versions.delete("shed", "m", "v1")

    def test_pages_and_filters(self, shed: Shed) -> None:
        for number in range(3):
            shed.create(f"v{number}", framework="XGBOOST" if number == 1 else "TENSORFLOW")
        first = shed.versions.page("shed", "m", PageRequest(size=2))
        rest = shed.versions.page("shed", "m", PageRequest(size=2, after=first.next))
        assert [v["name"][-2:] for v in (*first.items, *rest.items)] == ["v2", "v1", "v0"]
        for query, wanted in (("framework=XGBOOST", "v1"), ("isDefault=true", "v0")):
            found = shed.versions.page("shed", "m", PageRequest(size=9, query=query))
            assert [v["name"][-2:] for v in found.items] == [wanted]

    def test_a_patch_changes_what_its_mask_names(self, shed: Shed) -> None:
        shed.create(labels={"a": "b"}, autoScaling={"minNodes": 1, "maxNodes": 4}, machineType="n1-standard-2")
        done = shed.versions.patch(
            "shed", "m", "v1", mask="description,autoScaling.maxNodes", body={"autoScaling": {"maxNodes": 5}}
        )
        assert done["done"]
        assert done["metadata"]["operationType"] == "UPDATE_VERSION"
        now = shed.versions.get("shed", "m", "v1")
        assert now["autoScaling"] == {"minNodes": 1, "maxNodes": 5}
        assert {key: value for key, value in done["response"].items() if key != "@type"} == now
        assert shed.deployments.published[-1] == ("shed", "m")

        shed.versions.patch("shed", "m", "v1", mask="manualScaling.nodes", body={"manualScaling": {"nodes": 2}})
        now = shed.versions.get("shed", "m", "v1")
        assert (now["manualScaling"], "autoScaling" in now) == ({"nodes": 2}, False)
        [note] = shed.versions.details("shed", "m", "v1")["notes"]
        assert "machine_type" in note

        logging = {"bigqueryTableName": "gs://mine/log", "samplingPercentage": 0.5}
        shed.versions.patch("shed", "m", "v1", mask="requestLoggingConfig", body={"requestLoggingConfig": logging})
        assert shed.versions.get("shed", "m", "v1")["requestLoggingConfig"] == logging
        shed.versions.patch("shed", "m", "v1", mask="requestLoggingConfig,labels", body={})
        now = shed.versions.get("shed", "m", "v1")
        assert "requestLoggingConfig" not in now
        assert "labels" not in now

    def test_another_number_of_hosts_takes_until_they_are_there(self, shed: Shed) -> None:
        shed.create()
        shed.deployments.hold = True
        one, two = ({"manualScaling": {"nodes": nodes}} for nodes in (1, 2))
        begun = shed.versions.patch("shed", "m", "v1", mask="manualScaling.nodes", body=two)
        assert "done" not in begun
        assert begun["metadata"]["version"]["state"] == shed.state() == "UPDATING"
        assert shed.store.version("shed", "m", "v1").nodes == 2
        with pytest.raises(FailedPreconditionError, match="being changed already"):
            shed.versions.patch("shed", "m", "v1", mask="manualScaling.nodes", body=one)
        with pytest.raises(FailedPreconditionError, match="being updated"):
            shed.versions.delete("shed", "m", "v1")
        assert shed.versions.patch("shed", "m", "v1", mask="description", body={"description": "x"})["done"]
        shed.versions.set_default("shed", "m", "v1")  # it answers
        shed.deployments.hold = False
        shed.deployments.wake()
        done = shed.operation(begun)
        assert (done["response"]["state"], done["response"]["isDefault"]) == ("READY", True)
        assert shed.state() == "READY"

    @pytest.mark.parametrize(
        ("mask", "body"),
        [
            ("", {}),
            ("deploymentUri", {"deploymentUri": "gs://mine/export/1"}),
            ("name", {"name": "v2"}),
            ("framework", {"framework": "XGBOOST"}),
            ("manualScaling.nodes", {"manualScaling": {"nodes": 0}}),
            ("autoScaling.minNodes", {"autoScaling": {"minNodes": 1000}}),
            ("requestLoggingConfig", {"requestLoggingConfig": {"bigqueryTableName": "p.d.t"}}),
            ("requestLoggingConfig", {"requestLoggingConfig": {"bigqueryTableName": "gs://theirs/log"}}),
            ("description", {"foo": 1}),
            ("etag", {}),
        ],
    )
    def test_a_patch_that_makes_no_sense(self, shed: Shed, mask: str, body: dict[str, Any]) -> None:
        shed.create()
        before = shed.versions.get("shed", "m", "v1")
        with pytest.raises((InvalidArgumentError, FailedPreconditionError)):
            shed.versions.patch("shed", "m", "v1", mask=mask, body=body)
        assert shed.versions.get("shed", "m", "v1") == before

    def test_a_patch_with_an_old_etag_is_aborted(self, shed: Shed) -> None:
        shed.create()
        old = shed.versions.get("shed", "m", "v1")["etag"]
        body = {"description": "x", "etag": old}
        shed.versions.patch("shed", "m", "v1", mask="description", body=body)
        with pytest.raises(AbortedError):
            shed.versions.patch("shed", "m", "v1", mask="description", body=body)

    @pytest.mark.fault("F52")
    def test_the_default_can_go_only_as_the_last(self, shed: Shed) -> None:
        shed.create("v1")
        shed.create("v2")
        with pytest.raises(FailedPreconditionError, match="default version"):
            shed.versions.delete("shed", "m", "v1")
        begun = shed.versions.delete("shed", "m", "v2")
        assert begun["name"].startswith("projects/shed/operations/delete_m_v2-")
        assert shed.operation(begun)["response"] == {"@type": "type.googleapis.com/google.protobuf.Empty"}
        with pytest.raises(NotFoundError):
            shed.versions.get("shed", "m", "v2")
        shed.versions.delete("shed", "m", "v1")
        assert shed.default() == ""
        shed.models.delete("shed", "m")

    def test_a_version_on_its_way_in_or_out_can_not_be_deleted(self, shed: Shed) -> None:
        shed.deployments.hold = True
        shed.create()
        with pytest.raises(FailedPreconditionError, match="trainshed operations cancel create_m_v1-"):
            shed.versions.delete("shed", "m", "v1")
        shed.deployments.hold = False
        shed.deployments.wake()
        shed.deployments.hold = True
        shed.versions.delete("shed", "m", "v1")
        assert shed.state() == "DELETING"
        with pytest.raises(FailedPreconditionError):
            shed.versions.delete("shed", "m", "v1")
        with pytest.raises(FailedPreconditionError):
            shed.versions.set_default("shed", "m", "v1")
        with pytest.raises(FailedPreconditionError):
            shed.versions.patch("shed", "m", "v1", mask="description", body={})
        with pytest.raises(FailedPreconditionError):
            shed.models.delete("shed", "m")

    def test_set_default(self, shed: Shed) -> None:
        shed.create("v1")
        shed.create("v2")
        assert shed.versions.set_default("shed", "m", "v2")["isDefault"] is True
        assert shed.deployments.published[-1] == ("shed", "m")
        assert shed.default() == "v2"
        assert "isDefault" not in shed.versions.get("shed", "m", "v1")
        shed.deployments.hold = True
        shed.create("v3")
        with pytest.raises(FailedPreconditionError, match="CREATING"):
            shed.versions.set_default("shed", "m", "v3")


class TestRollout:
    @pytest.fixture(autouse=True)
    def versions(self, shed: Shed) -> None:
        for name in ("v1", "v2", "v3"):
            shed.create(name)

    def test_a_split(self, shed: Shed) -> None:
        shed.metrics.of(("shed", "m", "v1")).add(0.1, ok=True)
        told = shed.models.split("shed", "m", {"weights": {"v1": 90, "v2": 10}})
        assert told["split"] == {"v1": 90, "v2": 10}
        assert {version: hour["count"] for version, hour in told["traffic"].items()} == {"v1": 1}
        assert shed.store.get("shed", "m").split == {"v1": 90, "v2": 10}
        assert shed.deployments.published[-1] == ("shed", "m")
        assert shed.default() == "v1"
        with pytest.raises(FailedPreconditionError, match="10 % of the requests"):
            shed.versions.delete("shed", "m", "v2")
        assert shed.models.split("shed", "m", {"weights": {}})["split"] == {}
        assert shed.store.get("shed", "m").split == {}
        shed.versions.delete("shed", "m", "v2")

    @pytest.mark.parametrize(
        ("weights", "error"),
        [
            ({"v1": 90}, InvalidArgumentError),
            ({"v1": 90, "v2": 20}, InvalidArgumentError),
            ({"v1": 110, "v2": -10}, InvalidArgumentError),
            ({"v1": 100, "v2": 0}, InvalidArgumentError),
            ({"v1": 99.5, "v2": 0.5}, InvalidArgumentError),
            ({"v1": "x", "v2": 10}, InvalidArgumentError),
            ([], InvalidArgumentError),
            ({"v1": 90, "v9": 10}, NotFoundError),
        ],
    )
    def test_a_split_that_makes_no_sense(self, shed: Shed, weights: Any, error: type[TrainshedError]) -> None:
        with pytest.raises(error):
            shed.models.split("shed", "m", {"weights": weights})
        assert shed.store.get("shed", "m").split == {}

    def test_only_versions_that_are_ready_take_part(self, shed: Shed) -> None:
        shed.deployments.failure = "no"
        shed.create("bad")
        with pytest.raises(FailedPreconditionError, match="bad is FAILED"):
            shed.models.split("shed", "m", {"weights": {"v1": 50, "bad": 50}})

    def test_set_default_ends_a_split(self, shed: Shed) -> None:
        shed.models.split("shed", "m", {"weights": {"v1": 90, "v2": 10}})
        shed.versions.set_default("shed", "m", "v2")
        assert shed.models.details("shed", "m")["split"] == {}
        shed.models.split("shed", "m", {"weights": {"v1": 90, "v2": 10}})
        shed.versions.set_default("shed", "m", "v2")
        assert shed.models.details("shed", "m")["split"] == {}
        assert shed.models.details("shed", "m")["previousVersion"] == "v1"

    def test_rollback_leads_to_the_default_of_before_and_back(self, shed: Shed) -> None:
        with pytest.raises(FailedPreconditionError, match="no version to go back to"):
            shed.models.rollback("shed", "m")
        shed.versions.set_default("shed", "m", "v2")
        shed.versions.set_default("shed", "m", "v3")
        assert shed.models.rollback("shed", "m")["previousVersion"] == "v3"
        assert shed.default() == "v2"
        shed.models.rollback("shed", "m")
        assert shed.default() == "v3"
        assert shed.deployments.published[-1] == ("shed", "m")

    def test_rollback_ends_a_split_first(self, shed: Shed) -> None:
        shed.versions.set_default("shed", "m", "v2")
        shed.models.split("shed", "m", {"weights": {"v2": 90, "v3": 10}})
        assert shed.models.rollback("shed", "m")["split"] == {}
        assert shed.default() == "v2"

    def test_there_is_no_way_back_to_a_version_that_is_gone(self, shed: Shed) -> None:
        shed.versions.set_default("shed", "m", "v2")
        shed.versions.delete("shed", "m", "v1")
        with pytest.raises(FailedPreconditionError, match="no version to go back to"):
            shed.models.rollback("shed", "m")

    def test_there_is_no_way_back_to_a_version_that_is_going(self, shed: Shed) -> None:
        shed.versions.set_default("shed", "m", "v2")
        shed.deployments.hold = True
        shed.versions.delete("shed", "m", "v1")
        with pytest.raises(FailedPreconditionError, match="DELETING"):
            shed.models.rollback("shed", "m")


class TestPolicies:
    def test_roles_of_models(self, shed: Shed) -> None:
        ann = Principal(user="ann", project="shed", role=Role.VIEWER)
        asked = {"permissions": ["ml.models.predict", "ml.models.update", "ml.versions.create", "ml.models.get"]}
        assert shed.policies.test("shed", "m", ann, asked)["permissions"] == ["ml.models.predict", "ml.models.get"]
        binding = {"role": "roles/ml.modelOwner", "members": ["user:ann"]}
        shed.policies.set("shed", "m", {"policy": {"bindings": [binding]}})
        assert shed.policies.test("shed", "m", ann, asked)["permissions"] == asked["permissions"]
        assert shed.policies.get("shed", "m")["bindings"] == [binding]

    def test_roles_and_permissions_of_jobs_are_none_of_a_models(self, shed: Shed) -> None:
        for role in ("roles/ml.jobOwner", "roles/owner"):
            with pytest.raises(InvalidArgumentError, match="can't be held on a model"):
                shed.policies.set("shed", "m", {"policy": {"bindings": [{"role": role, "members": ["user:a"]}]}})
        owner = Principal(user="o", project="shed", role=Role.OWNER)
        with pytest.raises(InvalidArgumentError, match="not a permission on a model"):
            shed.policies.test("shed", "m", owner, {"permissions": ["ml.jobs.get"]})

    def test_without_a_model_there_is_no_policy(self, shed: Shed) -> None:
        with pytest.raises(NotFoundError):
            shed.policies.get("shed", "x")
        owner = Principal(user="o", project="shed", role=Role.OWNER)
        assert shed.policies.test("shed", "x", owner, {"permissions": ["ml.models.get"]}) == {}


def test_an_image_of_an_unknown_registry_is_refused(shed: Shed) -> None:
    with pytest.raises(InvalidArgumentError, match="setting image_registries allows") as refused:
        shed.versions.create("shed", "m", {"name": "v1", "container": {"image": "169.254.169.254/x"}})
    assert refused.value.field == "version.container.image"


class Rollouts(RuleBasedStateMachine):
    """Every order of requests to a model and its versions, which become ready or fail when deployments go on."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self._database = migrated_database(Path(self._folder.name) / "state.db")
        self.shed = Shed(self._database, Path(self._folder.name))
        self.shed.deployments.hold = True
        self.known: dict[str, dict[str, str]] = {}  #: the states of versions, by model
        self.defaults: dict[str, str] = {}

    def teardown(self) -> None:
        self._database.close()
        self._folder.cleanup()

    def _accepted(self, *expected: type[TrainshedError], request: Callable[[], object]) -> bool:
        """Whether a request succeeds. It must, unless an error is expected."""
        if not expected:
            request()
            return True
        with pytest.raises(expected):
            request()
        return False

    @rule(model=MODEL_NAMES)
    def create_model(self, model: str) -> None:
        expected = [AlreadyExistsError] if model in self.known else []
        if self._accepted(*expected, request=lambda: self.shed.models.create("shed", {"name": model})):
            self.known[model] = {}

    @rule(model=MODEL_NAMES)
    def delete_model(self, model: str) -> None:
        versions = self.known.get(model)
        expected = [NotFoundError] if versions is None else [FailedPreconditionError] if versions else []
        if self._accepted(*expected, request=lambda: self.shed.models.delete("shed", model)):
            del self.known[model]

    @rule(model=MODEL_NAMES, version=VERSION_NAMES)
    def create_version(self, model: str, version: str) -> None:
        versions = self.known.get(model)
        expected = [NotFoundError] if versions is None else [AlreadyExistsError] if version in versions else []
        body = {**VERSION, "name": version}
        if self._accepted(*expected, request=lambda: self.shed.versions.create("shed", model, body)):
            self.known[model][version] = "CREATING"

    @rule(model=MODEL_NAMES, version=VERSION_NAMES)
    def delete_version(self, model: str, version: str) -> None:
        state = self.known.get(model, {}).get(version)
        expected: list[type[TrainshedError]] = [NotFoundError] if state is None else []
        others = [each for name, each in self.known.get(model, {}).items() if name != version and each != "DELETING"]
        if state in ("CREATING", "DELETING") or (self.defaults.get(model) == version and others):
            expected = [FailedPreconditionError]
        if self._accepted(*expected, request=lambda: self.shed.versions.delete("shed", model, version)):
            self.known[model][version] = "DELETING"

    @rule(model=MODEL_NAMES, version=VERSION_NAMES)
    def set_default(self, model: str, version: str) -> None:
        state = self.known.get(model, {}).get(version)
        expected = [NotFoundError] if state is None else [FailedPreconditionError] if state != "READY" else []
        if self._accepted(*expected, request=lambda: self.shed.versions.set_default("shed", model, version)):
            self.defaults[model] = version

    @rule(failure=st.sampled_from(["", "The model can't be loaded."]))
    def deployments_go_on(self, failure: str) -> None:
        self.shed.deployments.hold, self.shed.deployments.failure = False, failure
        self.shed.deployments.wake()
        self.shed.deployments.hold = True
        for model, versions in self.known.items():
            for version, state in list(versions.items()):
                if state == "DELETING":
                    del versions[version]
                    if self.defaults.get(model) == version:
                        del self.defaults[model]
                elif state == "CREATING":
                    versions[version] = "FAILED" if failure else "READY"

    @invariant()
    def holds(self) -> None:
        for model, states in self.known.items():
            listed = self.shed.store.versions("shed", model)
            assert {version.id: version.state.value for version in listed} == states
            default = self.shed.store.get("shed", model).default_version
            if wanted := self.defaults.get(model):
                assert default == wanted, "it changes on request alone"
            elif default:  # the first one that is ready
                assert states[default] in ("READY", "DELETING")
                self.defaults[model] = default
            else:
                assert "READY" not in states.values()
        assert {model.id for model in self.shed.store.every()} == set(self.known)


Rollouts.TestCase.settings = settings(max_examples=20, stateful_step_count=30, deadline=None)
TestRollouts = pytest.mark.fault("F52")(Rollouts.TestCase)
