"""Facts about a version that have no field in the API's Version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from trainshed.domain.names import LOCAL_ENGINE


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionParity:
    """A comparison of the loader's answers to the sample request with those of the model's own framework."""

    reference: str  #: that framework, such as TensorFlow
    difference: float | None  #: the greatest one; None if they could not be compared
    within: bool  #: whether the loader may serve the version
    message: str

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> Self:
        return cls(
            reference=body["reference"],
            difference=body["difference"],
            within=body["within"],
            message=body["message"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchInvariance:
    """A comparison of answers in batches with answers alone."""

    difference: float | None  #: the greatest, relative to the largest magnitude of its output; None if not measured
    rows: int  #: that were compared
    message: str  #: whether requests are batched, and why not if not

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> Self:
        return cls(difference=body["difference"], rows=body["rows"], message=body["message"])


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredPrecision:
    """A precision lower than f32, and a comparison of answers in it with those in f32."""

    name: str
    difference: float | None  #: the greatest, relative to the largest magnitude of its output; None if not measured
    agreement: float | None  #: the share of rows whose largest value is the same one; None without columns to compare
    rows: int  #: that were compared
    message: str

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> Self:
        return cls(
            name=body["name"],
            difference=body["difference"],
            agreement=body["agreement"],
            rows=body["rows"],
            message=body["message"],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedModel:
    """The model of a version as its first host loaded it. Its fields are stored, and shown by the native API."""

    loader: str
    detail: str = ""  #: the framework and its release, for people
    batching: bool = False  #: whether requests are batched
    invariance: BatchInvariance | None = None  #: why, and what was measured
    precision: MeasuredPrecision | None = None  #: None in f32
    sample: Mapping[str, Any] | None = None  #: the sample request; None if the files have none and none can be made
    signatures: Mapping[str, Any] = field(default_factory=dict)  #: by name; empty for models without any
    parity: VersionParity | None = None  #: None if there is nothing to compare with
    site: str = ""  #: the folder of the version's own packages, if it has any
    size: int = 0  #: of its files, in bytes
    image: str = ""  #: the id of its container's image

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> Self:
        parity, invariance, loss = body.get("parity"), body.get("invariance"), body.get("precision")
        return cls(
            loader=body["loader"],
            detail=body.get("detail") or "",
            batching=bool(body.get("batching")),
            invariance=BatchInvariance.parse(invariance) if invariance else None,
            precision=MeasuredPrecision.parse(loss) if loss else None,
            sample=body.get("sample"),
            signatures=body.get("signatures") or {},
            parity=VersionParity.parse(parity) if parity else None,
            site=body.get("site", ""),
            size=body.get("size", 0),
            image=body.get("image", ""),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionDetails:
    """What the server decided for a version at its creation, and found out when it became READY."""

    runtime: str  #: of its hosts, such as "2.21"; empty for a container, which needs none
    engine: str = LOCAL_ENGINE  #: of its hosts
    notes: tuple[str, ...] = ()  #: for the owner of the version
    served: ServedModel | None = None  #: None until it is READY

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> Self:
        """Parse the flat form that `body` returns."""
        return cls(
            runtime=body["runtime"],
            engine=body["engine"],
            notes=tuple(body["notes"]),
            served=ServedModel.parse(body) if "loader" in body else None,
        )

    def body(self) -> dict[str, Any]:
        """One flat JSON object, as stored and as the native API shows it."""
        served = asdict(self.served) if self.served is not None else {}
        return {"runtime": self.runtime, "engine": self.engine, "notes": list(self.notes), **served}
