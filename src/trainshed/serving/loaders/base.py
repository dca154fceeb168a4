"""What a loader gives: a model of one of two kinds. A model is called by one thread at a time."""

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
    """A model with signatures: it takes and gives arrays. Strings are arrays of dtype `object` that hold `bytes`."""

    detail: str  #: what runs it, with its version, for people: "OpenVINO 2026.4.1"
    signatures: Mapping[str, Signature]

    def run(self, signature: str, inputs: dict[str, Array]) -> dict[str, Array]:
        """All outputs of a signature, by name, as copies that the next call leaves alone.

        The caller has seen to it that names, dtypes and shapes are those of the signature. Raises
        `InvalidInputsError` for values that the model refuses, or anything else, which is a failure of the model.
        """


@runtime_checkable
class InstanceModel(Protocol):
    """A model without signatures: it takes a list of instances, as JSON has them, and gives one prediction for each."""

    detail: str
    merges: bool  #: whether instances of several requests may be put into one call

    def predict(self, instances: list[Any], /, **kwargs: Any) -> list[Any]:
        """`kwargs` are the other fields of the request.

        Raises `InvalidInputsError`, `UserCodeError`, or anything else.
        """


@runtime_checkable
class RawModel(Protocol):
    """An `InstanceModel` that also answers bodies of any content type. (Custom prediction classes may.)"""

    def raw_predict(self, body: bytes, content_type: str) -> tuple[bytes, str]: ...


Model = TensorModel | InstanceModel
Loader = Callable[[ServingSpec], Model]  #: blocks; raises `LoaderError` with the framework's own words
