"""Exports the model in two forms, each in a folder of its own that can be deployed as a version."""

import io
import os
import tempfile

import torch

from trainer.model import SIDE

INPUTS, OUTPUTS = ["inputs"], ["classes", "probabilities"]


def export(model, folder):
    """Write model.onnx, which needs no PyTorch to be served, and model.pt2. Returns where they are."""
    example = (torch.rand(2, SIDE * SIDE),)
    shapes = {"inputs": {0: torch.export.Dim("count", min=1, max=1 << 20)}}
    program = torch.export.export(model, example, dynamic_shapes=shapes)
    pt2 = io.BytesIO()
    torch.export.save(program, pt2)
    onnx = torch.onnx.export(program, dynamo=True, input_names=INPUTS, output_names=OUTPUTS, verbose=False)
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, "model.onnx")
        onnx.save(path)  # one file up to 2 GB
        with open(path, "rb") as file:
            content = file.read()
    return [folder.write("export/onnx/model.onnx", content), folder.write("export/pt2/model.pt2", pt2.getvalue())]
