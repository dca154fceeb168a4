"""The contract of loaders: they return a model of one of two kinds. Models need not be thread-safe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ..signatures import Signature
from ..spec import ServingSpec

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.generic] | NDArray[np.object_]


@runtime_checkable
class TensorModel(Protocol):
    """A model with signatures: arrays in, arrays out. Strings are `bytes` in arrays of dtype `object`."""

    detail: str  #: what runs it, with its version, for people: "OpenVINO 2026.4.1"
    signatures: Mapping[str, Signature]

    def run(self, signature: str, inputs: dict[str, Array]) -> dict[str, Array]:
        """All outputs of a signature, by name. The next call does not change them.

        The caller guarantees that names, dtypes and shapes match the signature. Raises `InvalidInputsError` if the
        model rejects values. Any other exception is a failure of the model.
        """


@runtime_checkable
class ReducedModel(TensorModel, Protocol):
    """A `TensorModel` that computes in a lower precision if the spec asks for it."""

    precision: str  #: that it computes in

    def in_f32(self) -> TensorModel:
        """The same model in f32, for a comparison. Blocks while it is compiled."""


@runtime_checkable
class InstanceModel(Protocol):
    """A model without signatures: a list of JSON instances in, one prediction for each out."""

    detail: str
    merges: bool  #: whether requests may be batched

    def predict(self, instances: list[Any], /, **kwargs: Any) -> list[Any]:
        """Predict instances. `kwargs` are the other fields of the request.

        Raises `InvalidInputsError`, `UserCodeError`, or anything else.
        """


@runtime_checkable
class RawModel(Protocol):
    """An `InstanceModel` that also serves bodies of any content type. Custom prediction classes can."""

    def raw_predict(self, body: bytes, content_type: str) -> tuple[bytes, str]: ...


Model = TensorModel | InstanceModel
Loader = Callable[[ServingSpec], Model]  #: blocks; raises `LoaderError` with the framework's message
