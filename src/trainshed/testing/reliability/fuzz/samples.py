"""Where generated requests begin: names that the server has, words that break parsers, and good bodies."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

PROJECT = "fuzz"
BUCKETS = ("fuzz-one", "fuzz-two")
OBJECTS = ("a", "folder/b", "folder/c.tar.gz", "näme")
JOBS = ("job_1", "job_2", "job_3")
MODELS = ("model_1", "model_2")
VERSIONS = ("v1", "v2")

#: Values of path parameters and of fields that hold names, by the name without the end that discovery adds.
NAMES: Mapping[str, Sequence[str]] = {
    "project": (PROJECT,),
    "bucket": BUCKETS,
    "object": OBJECTS,
    "job": JOBS,
    "model": MODELS,
    "version": VERSIONS,
    "study": ("study_1", "study_2"),
    "trial": ("1", "2"),
    "location": ("us-central1", "global"),
    "operation": ("operation_1",),
    "entity": ("allUsers", "user-ada@example.com", "projectOwners-fuzz"),
    "secret": ("secret-1",),
    "user": ("fuzz-user",),
    "token": ("9f2c61d07ab4",),
    "sha256": ("e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",),
    "runtime": ("no-runtime",),
    "api": ("ml", "storage"),
    "key": ("no-key",),
    "path": ("assets/js/main.js",),
}
FIELD_NAMES: Mapping[str, str] = {
    "jobId": "job",
    "name": "model",
    "studyId": "study",
    "user": "user",
    "project": "project",
    "displayName": "study",
    "bucket": "bucket",
}

HARD_WORDS: Sequence[str] = (
    "",
    " ",
    ".",
    "..",
    "../../../etc/passwd",
    "%2e%2e%2f",
    "%",
    "a//b",
    "a\\b",
    "\0",
    "a\0b",
    "\r\nX-Injected: 1",
    "\ufeff",
    "\u202e",
    "e\u0301",
    "😀" * 40,
    "-",
    "-1",
    "0",
    "00",
    "1e400",
    "9" * 25,
    "9" * 5000,
    "٣",
    "NaN",
    "Infinity",
    "null",
    "true",
    "[]",
    "{}",
    "*",
    "**/*",
    "[a-",
    "{a,b",
    "?" * 30,
    "'; --",
    "<img src=x onerror=alert(1)>",
    "{{7*7}}",
    "gs://",
    "gs://fuzz-one",
    "gs://fuzz-one/folder/",
    "file:///etc/passwd",
    "http://169.254.169.254/",
    "2026-11-19T10:00:00Z",
    "9999-12-31T23:59:59.999999999Z",
    "0000-00-00T00:00:00Z",
    "3.5s",
    "-1s",
    "99999999999999s",
    "AAAA",
    "AAAAAAAAAAE=",
    "====",
    "x" * 1025,
    "é" * 600,
    "(" * 200,
    "NOT " * 100 + "a=b",
    "a=1 AND (b:2 OR NOT c>3)",
    'name:"job" state=RUNNING',
    'severity>=ERROR AND timestamp<"2026-01-01T00:00:00Z"',
    "items(name,id),nextPageToken",
    "items(((",
    "a/b/c/d/*",
    "trainingInput.args,labels.a",
)

HARD_VALUES: Sequence[Any] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    2**31,
    2**53 + 1,
    -(2**63),
    2**64,
    10**400,
    0.5,
    -0.0,
    1e308,
    [],
    {},
    [None],
    [[]],
    {"": ""},
    {"a": {"b": {"c": [1, {"d": None}]}}},
)

#: Written into a body as they are: no JSON encoder makes them.
HARD_TOKENS: Sequence[bytes] = (
    b"NaN",
    b"-Infinity",
    b"1e999",
    b'"\\ud800"',
    b'"\\u0000"',
    b"\xff\xfe",
    b"[" * 2000,
    b'{"a":' * 500,
    b"9" * 6000,
    b"-",
    b"01",
    b'{"a":1,"a":2}',
    b"/* */",
    b"\x00",
    b"\r\n--frontier--\r\n",
)

HARD_HEADERS: Sequence[tuple[str, str]] = (
    ("range", "bytes=0-"),
    ("range", "bytes=-5"),
    ("range", "bytes=9-2"),
    ("range", "bytes=" + "0-0," * 500),
    ("range", "bytes=99999999999999999999-"),
    ("content-range", "bytes 0-3/4"),
    ("content-range", "bytes */*"),
    ("content-range", "bytes 5-3/2"),
    ("content-range", "bytes 0-99999999999999999999999/*"),
    ("content-encoding", "gzip"),
    ("content-encoding", "br"),
    ("content-type", "text/plain; charset=utf-16"),
    ("content-type", "multipart/related; boundary="),
    ("content-type", 'multipart/mixed; boundary="' + "b" * 300 + '"'),
    ("content-type", "application/x-www-form-urlencoded"),
    ("content-type", "/"),
    ("accept-encoding", "gzip;q=nan, br;q=-1"),
    ("if-match", '"x"'),
    ("if-none-match", "*"),
    ("if-modified-since", "yesterday"),
    ("x-http-method-override", "DELETE"),
    ("x-http-method-override", "BREW"),
    ("x-goog-if-generation-match", "x"),
    ("x-upload-content-length", "-5"),
    ("x-upload-content-type", "é"),
    ("x-goog-hash", "crc32c=AAAAAA==,md5=x"),
    ("x-goog-stored-content-length", "9" * 30),
    ("inference-header-content-length", "9" * 30),
    ("origin", "https://evil.example"),
    ("origin", "null"),
    ("host", "evil.example"),
    ("cookie", "trainshed=x; a=" + "b" * 2000),
    ("sec-fetch-site", "cross-site"),
    ("expect", "100-continue"),
    ("authorization", "Basic Zm9vOmJhcg=="),
    ("authorization", "Bearer " + "x" * 4000),
    ("authorization", "Bearer ééé"),
    ("content-length", "-1"),
    ("content-length", "+3"),
    ("content-length", "1000"),
    ("transfer-encoding", "chunked"),
    ("transfer-encoding", "gzip, chunked"),
)

_JOB = {
    "jobId": "job_1",
    "labels": {"a": "b"},
    "trainingInput": {
        "scaleTier": "CUSTOM",
        "masterType": "standard",
        "workerType": "standard",
        "workerCount": "2",
        "region": "us-central1",
        "runtimeVersion": "python",
        "packageUris": ["gs://fuzz-one/none.tar.gz"],
        "pythonModule": "trainer.task",
        "args": ["--a", "b"],
        "jobDir": "gs://fuzz-one/job",
        "scheduling": {"maxRunningTime": "3600s"},
        "hyperparameters": {
            "goal": "MAXIMIZE",
            "hyperparameterMetricTag": "accuracy",
            "maxTrials": 4,
            "maxParallelTrials": 2,
            "params": [
                {
                    "parameterName": "rate",
                    "type": "DOUBLE",
                    "minValue": 0.1,
                    "maxValue": 1,
                    "scaleType": "UNIT_LOG_SCALE",
                },
                {"parameterName": "kind", "type": "CATEGORICAL", "categoricalValues": ["a", "b"]},
            ],
        },
    },
}
_BUCKET = {
    "name": "fuzz-one",
    "labels": {"a": "b"},
    "versioning": {"enabled": True},
    "storageClass": "STANDARD",
    "lifecycle": {
        "rule": [
            {"action": {"type": "Delete"}, "condition": {"age": 3650, "matchesPrefix": ["old/"], "numNewerVersions": 3}}
        ]
    },
    "cors": [{"origin": ["*"], "method": ["GET"], "responseHeader": ["x-a"], "maxAgeSeconds": 60}],
    "retentionPolicy": {"retentionPeriod": "1"},
    "iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}},
}
_POLICY = {"bindings": [{"role": "roles/storage.objectViewer", "members": ["allUsers"]}], "etag": "AAAAAAAAAAE="}
_ROWS = {"instances": [[1.0, 2.0, 0.5], {"b64": "AAAA"}], "signature_name": "serving_default"}

#: Good bodies, by the name of their schema.
BODIES: Mapping[str, Any] = {
    "Job": _JOB,
    "Model": {"name": "model_1", "description": "d", "regions": ["us-central1"], "labels": {"a": "b"}},
    "Version": {
        "name": "v1",
        "deploymentUri": "gs://fuzz-one/export",
        "runtimeVersion": "2.21",
        "framework": "TENSORFLOW",
        "manualScaling": {"nodes": 1},
    },
    "Bucket": _BUCKET,
    "Object": {
        "name": "a",
        "contentType": "text/plain",
        "metadata": {"k": "v"},
        "cacheControl": "no-store",
        "eventBasedHold": False,
        "customTime": "2026-11-19T10:00:00Z",
        "acl": [{"entity": "allUsers", "role": "READER"}],
    },
    "ComposeRequest": {
        "sourceObjects": [{"name": "a", "generation": "1", "objectPreconditions": {"ifGenerationMatch": "1"}}],
        "destination": {"contentType": "text/plain"},
    },
    "Study": {
        "studyConfig": {
            "metrics": [{"metric": "loss", "goal": "MINIMIZE"}],
            "parameters": [
                {"parameter": "x", "type": "DOUBLE", "doubleValueSpec": {"minValue": 0, "maxValue": 1}},
                {"parameter": "n", "type": "INTEGER", "integerValueSpec": {"minValue": 1, "maxValue": 9}},
            ],
            "algorithm": "RANDOM_SEARCH",
        }
    },
    "Trial": {
        "parameters": [{"parameter": "x", "floatValue": 0.5}, {"parameter": "n", "intValue": "3"}],
        "state": "ACTIVE",
    },
    "SuggestRequest": {"suggestionCount": 1, "clientId": "c"},
    "AddMeasurementRequest": {"measurement": {"stepCount": "1", "metrics": [{"metric": "loss", "value": 0.5}]}},
    "CompleteRequest": {"finalMeasurement": {"stepCount": "1", "metrics": [{"metric": "loss", "value": 0.5}]}},
    "SetIamPolicyRequest": {"policy": _POLICY},
    "TestIamPermissionsRequest": {"permissions": ["ml.jobs.get"]},
    "ListLogEntriesRequest": {
        "resourceNames": [f"projects/{PROJECT}"],
        "filter": 'resource.type="ml_job" AND severity>=INFO',
        "orderBy": "timestamp desc",
        "pageSize": 10,
    },
    "WriteLogEntriesRequest": {
        "logName": f"projects/{PROJECT}/logs/l",
        "resource": {"type": "global"},
        "entries": [
            {"severity": "ERROR", "jsonPayload": {"a": 1}, "insertId": "i", "timestamp": "2026-11-19T10:00:00Z"}
        ],
    },
    "PredictRequest": _ROWS,
    "ExplainRequest": _ROWS,
}

_MULTIPART = (
    b'--frontier\r\ncontent-type: application/json\r\n\r\n{"name": "a"}\r\n'
    b"--frontier\r\ncontent-type: text/plain\r\n\r\nbytes\r\n--frontier--\r\n"
)
_BATCH = (
    b"--frontier\r\ncontent-type: application/http\r\ncontent-id: <1>\r\n\r\n"
    b"GET /storage/v1/b/fuzz-one/o/a HTTP/1.1\r\naccept: */*\r\n\r\n\r\n"
    b"--frontier\r\ncontent-type: application/http\r\n\r\n"
    b'PATCH /storage/v1/b/fuzz-one/o/a HTTP/1.1\r\ncontent-type: application/json\r\n\r\n{"metadata": {"a": "b"}}\r\n'
    b"--frontier--\r\n"
)

#: Good bodies that are no JSON of a schema, by a part of the path: (content type, body, query).
RAW_BODIES: Mapping[str, Sequence[tuple[str, bytes, str]]] = {
    "/upload/storage/": (
        ("multipart/related; boundary=frontier", _MULTIPART, "uploadType=multipart"),
        ("text/plain", b"bytes", "uploadType=media&name=a"),
        ("application/json", b'{"name": "a"}', "uploadType=resumable"),
        ("application/octet-stream", b"bytes", "uploadType=resumable&upload_id=none"),
    ),
    "/batch/storage/": (("multipart/mixed; boundary=frontier", _BATCH, ""),),
    "/invocations": (
        ("application/json", json.dumps({"dataframe_split": {"columns": ["a"], "data": [[1]]}}).encode(), ""),
        ("text/csv", b"a,b\n1,2\n", ""),
    ),
    "/infer": (
        (
            "application/json",
            json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [1, 2, 3]}]}).encode(),
            "",
        ),
    ),
    ":predict": (("application/json", json.dumps(_ROWS).encode(), ""),),
    ":explain": (("application/json", json.dumps(_ROWS).encode(), ""),),
    ":rawPredict": (("application/json", json.dumps(_ROWS).encode(), ""),),
    "/iam": (("application/json", json.dumps(_POLICY).encode(), ""),),
    "/acl": (("application/json", json.dumps({"entity": "allUsers", "role": "READER"}).encode(), ""),),
    "/defaultObjectAcl": (("application/json", json.dumps({"entity": "allUsers", "role": "READER"}).encode(), ""),),
}
