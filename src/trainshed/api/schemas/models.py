"""Shapes of models, of their versions, and of replays."""

from typing import Annotated, Any, Literal, NotRequired, TypedDict

from trainshed.api.schemas.notes import Example, Json, Named, Time

Model = Annotated[
    dict[str, Any],
    "As `projects.models.get` of the ml v1 API gives it.",
    Named("Model", shown=False),
    Example({"name": "projects/trainshed/models/digits"}),
]
Version = Annotated[
    dict[str, Any],
    "As `projects.models.versions.get` of the ml v1 API gives it.",
    Named("Version", shown=False),
    Example({"name": "projects/trainshed/models/digits/versions/v1", "state": "READY"}),
]


class RequestsBody(TypedDict):
    """Requests of a time, with their latencies. Without requests, latencies are 0."""

    count: Annotated[int, Example(120)]
    errors: Annotated[int, Example(0)]
    p50Ms: Annotated[float, Example(1.9)]
    p99Ms: Annotated[float, Example(4.2)]


class MinuteBody(RequestsBody):
    """Requests of one minute."""

    time: Time


class TrafficBody(RequestsBody):
    """Requests to one version in the last hour. Minutes without a request are left out."""

    lastRequestTime: NotRequired[Time]
    minutes: list[MinuteBody]


class ModelDetailsBody(TypedDict):
    """A model with what the ml v1 API has no field for."""

    model: Model
    notes: Annotated[list[str], Example([])]
    split: Annotated[dict[str, int], "Percents by version; empty without a split.", Example({"v1": 90, "v2": 10})]
    previousVersion: Annotated[
        str, "The version that a rollback makes the default; empty if there is none.", Example("v1")
    ]
    traffic: Annotated[dict[str, TrafficBody], "By version; those without requests are left out.", Example({})]


class SplitRequestBody(TypedDict):
    """How requests that name no version are spread."""

    weights: NotRequired[
        Annotated[
            dict[str, int],
            "Whole percents above 0 that make 100, for versions that are READY. None end the split.",
            Example({"v1": 90, "v2": 10}),
        ]
    ]


class TensorBody(TypedDict):
    """An input or output of a signature."""

    dtype: Annotated[str, Example("float32")]
    shape: Annotated[list[int] | None, "-1 is any size; null is not known.", Example([-1, 784])]


class SignatureBody(TypedDict):
    """A signature of a model."""

    inputs: dict[str, TensorBody]
    outputs: dict[str, TensorBody]


class ParityBody(TypedDict):
    """How the loader's answers compare with those of the model's own framework."""

    reference: Annotated[str, "That framework.", Example("TensorFlow")]
    difference: Annotated[float | None, "The greatest between two numbers; null if none could be computed."]
    within: Annotated[bool, "Whether the loader may serve instead of it."]
    message: str


class InvarianceBody(TypedDict):
    """How answers in batches compare with answers alone."""

    difference: Annotated[
        float | None,
        "The greatest, relative to the largest magnitude of its output; null if not measured.",
        Example(2e-7),
    ]
    rows: Annotated[int, "That were compared.", Example(65)]
    message: Annotated[str, "Whether requests are batched, and why not if not."]


class PrecisionBody(TypedDict):
    """A precision lower than f32, and how answers in it compare with those in f32."""

    name: Annotated[str, Example("bf16")]
    difference: Annotated[
        float | None,
        "The greatest, relative to the largest magnitude of its output; null if not measured.",
        Example(5.5e-3),
    ]
    agreement: Annotated[
        float | None,
        "The share of rows whose largest value is the same one; null if no output has columns.",
        Example(1.0),
    ]
    rows: Annotated[int, "That were compared.", Example(65)]
    message: str


class SampleBody(TypedDict):
    """The body of a predict request, as Google has it."""

    instances: Annotated[list[Json], Example([[0.0, 0.0, 0.0]])]
    signature_name: NotRequired[Annotated[str, Example("serving_default")]]


class HostBody(TypedDict):
    """A process that serves a version."""

    instance: Annotated[int, Example(0)]
    pid: Annotated[int, Example(4711)]
    state: Annotated[Literal["STARTING", "READY", "ENDED"], Example("READY")]
    memoryBytes: Annotated[int, Example(212_000_000)]
    ageSeconds: Annotated[float, Example(90.5)]
    stats: Annotated[
        dict[str, float],
        "Requests that wait, for how long the present one runs, and since the start `requests`, `instances`, "
        "`batches`, `failed`, `refused` and `cancelled`.",
        Example({"waiting": 0, "requests": 120}),
    ]
    address: Annotated[str, "Empty on this machine.", Example("")]


class ScalingBody(TypedDict):
    """How many hosts a version has by its load."""

    minHosts: Annotated[int, "0: it sleeps while nobody calls.", Example(1)]
    maxHosts: Annotated[int, Example(4)]
    hosts: Annotated[int, "How many there are to be now; 0 while it sleeps.", Example(2)]
    inFlight: Annotated[int, "Requests that hosts work on or have in their queues.", Example(11)]
    waitsForMemory: Annotated[bool, "More hosts are wanted than fit into the machine's memory.", Example(False)]


class VersionDetailsBody(TypedDict):
    """A version with what the ml v1 API has no field for. What its creation finds out is missing before."""

    version: Version
    runtime: Annotated[str, Example("2.21")]
    engine: Annotated[str, Example("local")]
    notes: Annotated[list[str], Example([])]
    loader: NotRequired[Annotated[str, Example("openvino")]]
    detail: NotRequired[Annotated[str, "The loader, in words."]]
    batching: NotRequired[Annotated[bool, "Whether requests are put into batches.", Example(True)]]
    invariance: NotRequired[InvarianceBody | None]
    precision: NotRequired[Annotated[PrecisionBody | None, "Null in f32.", Example(None)]]
    parity: NotRequired[Annotated[ParityBody | None, Example(None)]]
    site: NotRequired[Annotated[str, "The folder of the version's own packages; empty without."]]
    size: NotRequired[Annotated[int, "Bytes of its files.", Example(1_200_000)]]
    image: NotRequired[Annotated[str, "The id of the image of a version that is a container.", Example("")]]
    sample: NotRequired[Annotated[SampleBody | None, "The request that warms it."]]
    signatures: NotRequired[Annotated[dict[str, SignatureBody], Example({})]]
    files: Annotated[str, "The digest of its files; empty before they were copied.", Example("")]
    operation: Annotated[str, "The operation that changes it now; empty if none does.", Example("")]
    progress: Annotated[str, "What its creation does now, or why it does not serve.", Example("")]
    hosts: list[HostBody]
    scaling: Annotated[ScalingBody | None, "Null if the number of hosts is fixed."]
    log: Annotated[str, "The end of what its host printed.", Example("")]


class SampleRequestBody(TypedDict):
    """Instances to begin with."""

    instances: Annotated[list[Json], Example([[0.0, 0.0, 0.0]])]
    signature: Annotated[str, Example("serving_default")]
    inputs: Annotated[dict[str, TensorBody], "Of the signature."]
    source: Annotated[
        Literal["sample", "signature", ""],
        "`sample`: the request that warmed the version. `signature`: zeros and empty texts of the right shape.",
    ]
    cut: Annotated[bool, "Whether the sample is above 64 KB, and only its first instance is given."]


class ReplayRequestBody(TypedDict):
    """Which logged requests are replayed."""

    count: NotRequired[
        Annotated[int, "The number of requests, newest first: 1 to 10,000, 100 if not given.", Example(100)]
    ]


class DifferenceBody(TypedDict):
    """An instance whose prediction has changed."""

    instance: Json
    before: Json
    after: Json


class LatencyBody(TypedDict):
    """Percentiles."""

    p50: Annotated[float, Example(1.9)]
    p99: Annotated[float, Example(4.2)]


class LatencyChangeBody(TypedDict):
    """Latencies as logged, and of the replay."""

    before: LatencyBody
    after: LatencyBody


class ReplayBody(TypedDict):
    """How a version answered logged requests."""

    compared: Annotated[int, Example(100)]
    complete: Annotated[bool, "False if the time or the bytes of a replay were over before all requests were compared."]
    changed: Annotated[int, Example(1)]
    examples: Annotated[list[DifferenceBody], "Ten at most."]
    latencyMs: LatencyChangeBody
