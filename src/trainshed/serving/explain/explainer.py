"""Explanations: which values of an instance contribute to its score, by the method of the version's configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ..codec.json_documents import read_object
from ..codec.tensors import instances_of, tensor_request
from ..errors import InvalidInputsError, LoaderError
from ..formats.saved_model import read_signatures
from ..loaders.base import Model, TensorModel
from ..loaders.tabular import TabularModel
from ..signatures import DEFAULT, STRING, Signature, Tensor
from . import metadata as explain_metadata
from .attribution import Attribution, integrated_gradients, sampled_shapley
from .metadata import ExplainedInput, Metadata

GRADIENTS, SHAPLEY = "integratedGradientsAttribution", "sampledShapleyAttribution"
DEFAULT_STEPS, DEFAULT_PATHS = 50, 10
ROW = "inputs"  #: default name of the values of a table's row
MAX_EVALUATED_ROWS = 200_000  #: of the model, for the sampled paths of one instance
PREFERRED = ("probabilities", "probability", "scores", "predictions", "logits")  #: among several float outputs


@runtime_checkable
class Differentiable(Protocol):
    """A model that can compute gradients of an output."""

    def gradients(
        self, signature: str, inputs: dict[str, NDArray[Any]], *, output: str, labels: NDArray[Any]
    ) -> dict[str, NDArray[Any]]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The explained function: arrays in, one number for each label out."""

    inputs: Mapping[str, ExplainedInput]  #: explained inputs, by the model's own names
    output: str  #: its name in the response
    read: Callable[[bytes], dict[str, NDArray[Any]]]  #: the inputs of a request body; raises `InvalidInputsError`
    scores: Callable[[dict[str, NDArray[Any]]], NDArray[np.float64]]
    gradients: Callable[[dict[str, NDArray[Any]], NDArray[Any]], Mapping[str, NDArray[Any]]] | None


class Explainer:
    """Explains instances of one version. Not thread-safe. Deterministic."""

    def __init__(self, subject: Subject, *, steps: int, paths: int) -> None:
        self._subject = subject
        self._steps = steps  # 0: sampled paths
        self._paths = paths

    def explain(self, body: bytes) -> dict[str, Any]:
        """Return the response to a request: for each instance, the explanation of the label with the highest score.

        Raises `InvalidInputsError`, and what the model raises.
        """
        inputs = self._subject.read(body)
        count = len(next(iter(inputs.values())))
        rows = ({name: array[at] for name, array in inputs.items()} for at in range(count))
        return {"explanations": [self._explain_one({n: np.asarray(value) for n, value in row.items()}) for row in rows]}

    def _explain_one(self, instance: dict[str, NDArray[Any]]) -> dict[str, Any]:
        score = self._subject.scores({name: value[np.newaxis] for name, value in instance.items()})[0]
        label = int(np.argmax(score))
        attributions = [self._attribution(instance, baseline, label) for baseline in self._baselines(instance)]
        names = list(attributions[0][0].values)
        values = {
            name: np.mean([attribution.values[name] for attribution, _ in attributions], axis=0) for name in names
        }
        baseline_score = float(np.mean([start for _, start in attributions]))
        gap = abs(sum(float(value.sum()) for value in values.values()) - (float(score[label]) - baseline_score))
        error = max(gap, *(attribution.spread for attribution, _ in attributions))
        explanation = {
            "label_index": label,
            "output_name": self._subject.output,
            "example_score": float(score[label]),
            "baseline_score": baseline_score,
            "approx_error": error,
            "attributions": self._by_feature(values),
        }
        return {"attributions_by_label": [explanation]}

    def _attribution(self, instance: dict[str, Any], baseline: dict[str, Any], label: int) -> tuple[Attribution, float]:
        start = {name: value[np.newaxis] for name, value in {**instance, **baseline}.items()}
        score = float(self._subject.scores(start)[0, label])
        gradients = self._subject.gradients
        if self._steps and gradients is not None:
            return integrated_gradients(
                lambda rows: gradients(rows, np.full(len(next(iter(rows.values()))), label)),
                instance,
                baseline,
                steps=self._steps,
            ), score
        needed = self._paths * (1 + sum(np.size(value) for value in baseline.values()))
        if needed > MAX_EVALUATED_ROWS:
            raise InvalidInputsError(
                f"Sampled Shapley would have to run the model {needed} times for one instance; {MAX_EVALUATED_ROWS} is "
                "the most. Ask for fewer paths, or for integrated gradients."
            )
        rng = np.random.default_rng(0)  # so that explanations are deterministic
        return sampled_shapley(
            lambda rows: self._subject.scores(rows)[:, label], instance, baseline, paths=self._paths, rng=rng
        ), score

    def _baselines(self, instance: Mapping[str, NDArray[Any]]) -> list[dict[str, NDArray[Any]]]:
        """The first baseline of each input, then the second of each. An input with fewer repeats its last."""
        count = max(1, *(len(item.baselines) for item in self._subject.inputs.values()))
        return [
            {name: _baseline(instance[name], item, at) for name, item in self._subject.inputs.items()}
            for at in range(count)
        ]

    def _by_feature(self, values: Mapping[str, NDArray[np.float64]]) -> dict[str, Any]:
        named: dict[str, Any] = {}
        for name, item in self._subject.inputs.items():
            if item.features:
                named |= {
                    feature: [float(v)] for feature, v in zip(item.features, values[name].reshape(-1), strict=True)
                }
            else:
                named[item.name] = np.atleast_1d(values[name]).tolist()
        return named


def explainer(config: Mapping[str, Any], model: Model, model_dir: Path) -> Explainer:
    """The explainer of an explanationConfig. Raises `LoaderError` if it does not fit the model."""
    methods = sorted(set(config) & {GRADIENTS, SHAPLEY})
    if len(methods) != 1 or len(config) != 1:
        raise LoaderError(f"An explanationConfig names one of {GRADIENTS} and {SHAPLEY}, not {', '.join(config)}.")
    metadata = explain_metadata.read(model_dir)
    if isinstance(model, TensorModel):
        subject = _tensor_subject(model, metadata, model_dir, gradients=methods == [GRADIENTS])
    elif isinstance(model, TabularModel):
        subject = _table_subject(model, metadata)
    else:
        raise LoaderError("Versions with a prediction class of their own cannot be explained.")
    if methods == [GRADIENTS]:
        if subject.gradients is None:
            raise LoaderError(f"{GRADIENTS} needs a model that TensorFlow runs, and this one is run by {model.detail}.")
        return Explainer(subject, steps=_count(config[GRADIENTS], "numIntegralSteps", DEFAULT_STEPS), paths=0)
    return Explainer(subject, steps=0, paths=_count(config[SHAPLEY], "numPaths", DEFAULT_PATHS))


def _count(config: Any, name: str, default: int) -> int:
    try:
        count = int(config.get(name, default))
    except (AttributeError, TypeError, ValueError) as exc:
        raise LoaderError(f"{name} of the explanationConfig must be a number.") from exc
    if count < 1:
        raise LoaderError(f"{name} of the explanationConfig must be at least 1.")
    return count


def _table_subject(model: TabularModel, metadata: Metadata) -> Subject:
    explained_input = metadata.inputs[0] if metadata.inputs else ExplainedInput(name=ROW, features=tuple(model.names))
    if len(metadata.inputs) > 1:
        raise LoaderError(
            f"{explain_metadata.FILE}: a model that takes rows has one input, not {len(metadata.inputs)}."
        )
    return Subject(
        inputs={ROW: explained_input},
        output=metadata.output or "prediction",
        read=lambda body: {ROW: model.rows(instances_of(read_object(body)))},
        scores=lambda inputs: model.scores(inputs[ROW]),
        gradients=None,
    )


def _tensor_subject(model: TensorModel, metadata: Metadata, model_dir: Path, *, gradients: bool) -> Subject:
    name = DEFAULT if DEFAULT in model.signatures else min(model.signatures)
    signature = model.signatures[name]
    aliases = _aliases(model_dir, name)
    output = _output(signature, metadata, aliases)
    candidates = {key: tensor for key, tensor in signature.inputs.items() if not gradients or _is_float(tensor)}
    inputs = {_resolve(item.tensor or item.name, signature.inputs, aliases): item for item in metadata.inputs} or {
        key: ExplainedInput(name=key) for key in candidates
    }
    if fixed := sorted(set(inputs) - set(candidates)):
        raise LoaderError(
            f"Integrated gradients explain inputs of floats, and {fixed[0]} is {signature.inputs[fixed[0]].dtype}."
        )
    if not inputs:
        raise LoaderError("The signature has no input of floats, which integrated gradients need.")

    def read(body: bytes) -> dict[str, NDArray[Any]]:
        request = tensor_request(body, model.signatures)
        if request.signature != name:
            raise InvalidInputsError(f"The signature {name} is explained, and the request names {request.signature}.")
        return dict(request.inputs)

    def scores(feeds: dict[str, NDArray[Any]]) -> NDArray[np.float64]:
        return np.asarray(model.run(name, feeds)[output], np.float64).reshape(len(next(iter(feeds.values()))), -1)

    def gradients_of(feeds: dict[str, NDArray[Any]], labels: NDArray[Any]) -> Mapping[str, NDArray[Any]]:
        return model.gradients(name, feeds, output=output, labels=labels) if isinstance(model, Differentiable) else {}

    gradient_function = gradients_of if isinstance(model, Differentiable) else None
    return Subject(
        inputs=inputs, output=metadata.output or output, read=read, scores=scores, gradients=gradient_function
    )


def _output(signature: Signature, metadata: Metadata, aliases: Mapping[str, str]) -> str:
    if metadata.output:
        return _resolve(metadata.output_tensor or metadata.output, signature.outputs, aliases)
    floats = [name for name, tensor in signature.outputs.items() if _is_float(tensor)]
    choice = floats if len(floats) == 1 else [name for name in PREFERRED if name in floats][:1]
    if not choice:
        known = ", ".join(signature.outputs)
        raise LoaderError(f"Say in {explain_metadata.FILE} which output is to be explained. The outputs are: {known}.")
    return choice[0]


def _resolve(name: str, known: Mapping[str, Tensor], aliases: Mapping[str, str]) -> str:
    key = name if name in known else aliases.get(name, "")
    if key not in known:
        raise LoaderError(f"{explain_metadata.FILE}: {name} is none of the signature's: {', '.join(known)}.")
    return key


def _aliases(model_dir: Path, signature: str) -> dict[str, str]:
    """The keys of a signature by their tensors' names in the graph, without `:0`. Empty without a graph."""
    if not (model_dir / "saved_model.pb").is_file():
        return {}
    graph = read_signatures(model_dir)[signature]
    return {tensor.removesuffix(":0"): key for key, tensor in (*graph.inputs.items(), *graph.outputs.items())}


def _baseline(value: NDArray[Any], item: ExplainedInput, at: int) -> NDArray[Any]:
    value = np.asarray(value)
    if not item.baselines:
        filler: Any = b"" if value.dtype.kind == "O" and isinstance(value.reshape(-1)[0], bytes) else 0
        return np.full(value.shape, filler, value.dtype)
    baseline = item.baselines[min(at, len(item.baselines) - 1)]
    try:
        return np.broadcast_to(np.asarray(_encode(baseline), value.dtype), value.shape).copy()
    except (TypeError, ValueError) as exc:
        raise InvalidInputsError(
            f"A baseline of {item.name} in {explain_metadata.FILE} does not fit: its shape must be {list(value.shape)}."
        ) from exc


def _encode(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    return [_encode(item) for item in value] if isinstance(value, Sequence) else value


def _is_float(tensor: Tensor) -> bool:
    return tensor.dtype != STRING and "float" in tensor.dtype
