"""PyTorch: programs of `torch.export` (`.pt2`), TorchScript, and the state_dict of a module of the version's packages.

A program knows its inputs and outputs. For the other two, which are `model.pt`, `torch_model.json` describes them.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from ..errors import BadOutputsError, InvalidInputsError, LoaderError, ModelRunError, UserCodeError
from ..signatures import DEFAULT, DTYPES, STRING, Signature, Tensor
from ..spec import ServingSpec

if TYPE_CHECKING:
    from .base import Array

PROGRAM, WEIGHTS, DESCRIPTION = ".pt2", "model.pt", "torch_model.json"
_FIELDS = {"module", "arguments", "inputs", "outputs"}
_NUMPY_DTYPES = set(DTYPES.values()) - {STRING, "bfloat16"}
_Call = Callable[[dict[str, Any]], Sequence[Any]]  #: inputs by name -> outputs in the order of the signature


def load(spec: ServingSpec) -> PyTorchModel:
    """The model in a folder: its only program, or `model.pt`."""
    torch.set_num_threads(spec.threads)
    programs = sorted(path for path in spec.model_dir.iterdir() if path.suffix == PROGRAM)
    if len(programs) > 1:
        names = ", ".join(path.name for path in programs)
        raise LoaderError(f"The folder must have one {PROGRAM} file, and has {len(programs)}: {names}.")
    if programs:
        return _program(programs[0])
    path = spec.model_dir / WEIGHTS
    if not path.is_file():
        raise LoaderError(f"Could not find a {PROGRAM} file or {WEIGHTS} in {spec.model_dir}.")
    description = _read_description(spec.model_dir / DESCRIPTION)
    if "module" in description:
        return _described(_module(path, description), description, what=f"module {description['module']}")
    return _described(_script(path), description, what="TorchScript")


class PyTorchModel:
    """A callable with one signature."""

    def __init__(self, call: _Call, signature: Signature, *, what: str) -> None:
        self.detail = f"PyTorch {torch.__version__}"
        self.signatures = {DEFAULT: signature}
        self._call = call
        self._what = what

    def run(self, signature: str, inputs: dict[str, Array]) -> dict[str, Array]:
        feeds = {name: torch.from_numpy(np.require(array, requirements="W")) for name, array in inputs.items()}
        try:
            with torch.inference_mode():
                outputs = self._call(feeds)
        except AssertionError as exc:  # a guard of torch.export, such as on the number of instances
            raise InvalidInputsError(f"Exception during running the graph: {exc}") from exc
        except Exception as exc:  # a module may run any code
            raise ModelRunError(f"Exception during pytorch prediction: {type(exc).__name__}: {exc}") from exc
        names = self.signatures[signature].outputs
        if len(outputs) != len(names):
            raise BadOutputsError(f"The {self._what} returned {len(outputs)} outputs; expected {len(names)}.")
        return {name: _array(name, output) for name, output in zip(names, outputs, strict=True)}


def _program(path: Path) -> PyTorchModel:
    try:
        program = torch.export.load(path)
    except Exception as exc:  # of any class, by what is damaged
        raise LoaderError(f"Could not load the model: {path.name}. {type(exc).__name__}: {exc}") from exc
    graph, spec = program.graph_signature, program.call_spec
    metas = {node.name: node.meta.get("val") for node in program.graph.nodes}
    returned = next(node for node in program.graph.nodes if node.op == "output").args[0]
    values = [metas.get(getattr(node, "name", "")) for node in returned][-len(graph.user_outputs) :]
    names = _output_names(pytree.tree_unflatten(range(len(values)), spec.out_spec), count=len(values))
    order = list(graph.user_inputs)
    signature = Signature(
        inputs={name: _tensor(f"Input {name}", metas.get(name)) for name in sorted(order)},
        outputs={name: _tensor(f"Output {name}", values[at]) for name, at in sorted(names.items())},
    )
    module = program.module()

    def call(feeds: dict[str, Any]) -> Sequence[Any]:
        args, kwargs = pytree.tree_unflatten([feeds[name] for name in order], spec.in_spec)
        flat = pytree.tree_leaves(module(*args, **kwargs))
        return [flat[names[name]] for name in signature.outputs]

    return PyTorchModel(call, signature, what="program")


def _output_names(structure: Any, *, count: int) -> dict[str, int]:
    """Names of outputs and their positions: the keys of an object, `output` for one tensor, else `output_0` and on."""
    if isinstance(structure, Mapping) and all(isinstance(at, int) for at in structure.values()):
        return {str(name): at for name, at in structure.items()}
    return {"output" if count == 1 else f"output_{at}": at for at in range(count)}


def _tensor(what: str, value: Any) -> Tensor:
    if not isinstance(value, torch.Tensor):
        raise LoaderError(f"{what} is a {type(value).__name__}. Export a model whose inputs and outputs are tensors.")
    dtype = str(value.dtype).removeprefix("torch.")
    if dtype not in _NUMPY_DTYPES:
        raise LoaderError(f"{what} has the type {dtype}, which has no form in JSON. Convert it in the model.")
    return Tensor(dtype=dtype, shape=tuple(size if isinstance(size, int) else -1 for size in value.shape))


def _read_description(path: Path) -> Mapping[str, Any]:
    """The content of `torch_model.json`; empty if there is none."""
    if not path.is_file():
        return {}
    try:
        value = json.loads(path.read_bytes())
    except ValueError as exc:
        raise LoaderError(f"{path.name} is no JSON: {exc}.") from exc
    if not isinstance(value, dict) or not set(value) <= _FIELDS:
        raise LoaderError(f"{path.name} must be an object with fields among {', '.join(sorted(_FIELDS))}.")
    return value


def _described(module: Any, description: Mapping[str, Any], *, what: str) -> PyTorchModel:
    """The model of a module, with the signature in its description."""
    try:
        signature = Signature.from_json(description)
    except (KeyError, TypeError, ValueError, AttributeError) as exc:
        raise LoaderError(
            f"{WEIGHTS} does not say what its inputs and outputs are: {DESCRIPTION} must, as in "
            '{"inputs": {"x": {"dtype": "float32", "shape": [-1, 3]}}, '
            '"outputs": {"y": {"dtype": "float32", "shape": [-1]}}}. '
            f"There, {type(exc).__name__}: {exc}."
        ) from exc
    for name, tensor in (*signature.inputs.items(), *signature.outputs.items()):
        if tensor.dtype not in _NUMPY_DTYPES:
            raise LoaderError(f"{DESCRIPTION} gives {name} the type {tensor.dtype!r}, which is none of PyTorch's here.")
    module.eval()
    order = list(signature.inputs)
    signature = Signature(
        inputs=dict(sorted(signature.inputs.items())), outputs=dict(sorted(signature.outputs.items()))
    )
    written = list(description["outputs"])

    def call(feeds: dict[str, Any]) -> Sequence[Any]:
        result = module(*(feeds[name] for name in order))
        if isinstance(result, Mapping):
            missing = [name for name in signature.outputs if name not in result]
            if missing:
                raise KeyError(f"the output {missing[0]} of {DESCRIPTION} is not among {', '.join(map(str, result))}")
            return [result[name] for name in signature.outputs]
        results = result if isinstance(result, list | tuple) else [result]
        if len(results) != len(written):
            return list(results)
        return [results[written.index(name)] for name in signature.outputs]

    return PyTorchModel(call, signature, what=what)


def _script(path: Path) -> Any:
    try:
        return torch.jit.load(path, map_location="cpu")
    except RuntimeError as exc:
        raise LoaderError(
            f"Could not load the model: {path.name} holds no TorchScript. A state_dict needs the class of its module, "
            f'as "module" in {DESCRIPTION}. {_first_line(exc)}'
        ) from exc


def _module(path: Path, description: Mapping[str, Any]) -> Any:
    """The user's module with the weights in the file."""
    name, arguments = str(description["module"]), description.get("arguments", {})
    if not isinstance(arguments, dict):
        raise LoaderError(f'"arguments" in {DESCRIPTION} must be an object: the named arguments of {name}.')
    package, _, attribute = name.rpartition(".")
    try:
        kind = getattr(importlib.import_module(package), attribute)
        module = kind(**arguments)
    except Exception as exc:  # the user's code
        raise UserCodeError(f"{name} of {DESCRIPTION} can't be made: {type(exc).__name__}: {exc}.") from exc
    if not isinstance(module, torch.nn.Module):
        raise UserCodeError(f"{name} of {DESCRIPTION} is no torch.nn.Module.")
    try:
        module.load_state_dict(torch.load(path, map_location="cpu", weights_only=True))
    except Exception as exc:  # of any class, by what is damaged
        raise LoaderError(f"{path.name} is no state_dict of {name}: {type(exc).__name__}: {exc}") from exc
    return module


def _array(name: str, value: Any) -> Array:
    if not isinstance(value, torch.Tensor):
        raise BadOutputsError(f"Output {name} is a {type(value).__name__} and no tensor.")
    array: Array = value.detach().numpy()
    return array


def _first_line(exc: BaseException) -> str:
    return str(exc).strip().split("\n", 1)[0]
