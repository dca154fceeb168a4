"""Finds or pulls the images of a job, checks their architecture, and pins them by id."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

from ..failure import IMAGE_ARCHITECTURE, IMAGE_MISSING, INSTALLATION, NodeFailureError, write_failure
from ..files import write_file
from . import tool as container_tool
from .tool import ContainerTool, NoContainerToolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

    Say = Callable[[str], None]

IMAGES_FILE = "containers.json"  #: in the attempt's folder: the tool, and the id of each image
_WRONG_PLATFORM = ("no image found in manifest list", "no matching manifest", "no image found in image index")

#: lines of Podman and Docker that tell of progress
_PROGRESS = re.compile(
    r"(Trying to pull |Getting image |Copying (blob|config) |Writing manifest |Storing signatures|Digest: sha256:"
    r"|Status: (Downloaded|Image is)|[0-9a-f]{12}: |[0-9a-f]{64}$|[\w./-]+: Pulling from )"
)
#: signs of a registry's own errors in the output of the tool, and the reason for people
_ANSWERS = (
    (("manifest unknown", "manifest_unknown"), "the registry has no such tag (manifest unknown)"),
    (("name unknown", "name_unknown", "repository not found"), "the registry has no such image (name unknown)"),
    (("toomanyrequests", "too many requests"), "the registry has had too many requests"),
    (
        ("unauthorized", "authentication required", "access to the resource is denied", "denied:"),
        "the registry denies access, or has no such image (unauthorized)",
    ),
    (("no space left on device",), "the disk of this machine is full"),
)
_NO_ANSWER = "there was no answer of a registry"
_MISSING_IMAGE = (
    "The image %s is not on this machine, and it can't be pulled: %s. Build it here, with `%s build -t %s .`, or check "
    "its name and whether this machine reaches the registry."
)
_WRONG_ARCHITECTURE = (
    "The image %s is made for %s, and this machine is %s. Build it for this machine: `%s build --platform linux/%s "
    "-t %s .`"
)


class ImageError(NodeFailureError):
    """An image can't be pulled or can't run here."""


def prepare_images(folder: str) -> int:
    """Find or pull the images that the spec in `folder` names, and write their ids there. Returns 1 on failure, with
    the reason on stderr and in `install.failure`."""
    with open(os.path.join(folder, "spec.json"), "rb") as file:
        spec = json.loads(file.read().decode())
    containers = [each["container"] for each in spec["replicas"]]
    images = {each["image"]: each.get("pull", True) for each in sorted(containers, key=lambda each: each["image"])}
    try:
        tool, ids = ensure_images(container_tool.find(spec["containers"]["tool"]), images, _log)
    except (NoContainerToolError, ImageError) as exc:
        write_failure(folder, INSTALLATION, exc.failure)
        sys.stderr.write("%s\n" % exc)
        return 1
    write_file(os.path.join(folder, IMAGES_FILE), json.dumps({"tool": tool.words(), "images": ids}).encode())
    return 0


def ensure_images(
    tools: list[ContainerTool], images: dict[str, bool], log: Say
) -> tuple[ContainerTool, dict[str, str]]:
    """The tool that has all of these images, and the id of each. If no tool has all, the first
    one pulls the missing ones that have True.

    Raises `ImageError` if an image can't be pulled, or is for another architecture.
    """
    for tool in tools:
        details = {image: _inspect(tool, image) for image in images}
        if all(details.values()):
            break
    else:
        tool = tools[0]
        details = {image: _inspect(tool, image) or _pull(tool, image, log, may) for image, may in images.items()}
    return tool, {image: _check_architecture(tool, image, info) for image, info in details.items() if info}


def _inspect(tool: ContainerTool, image: str) -> Optional[dict[str, Any]]:
    """What the tool knows of a local image. Returns None if it is missing."""
    process = container_tool.run_tool(container_tool.inspect_command(tool, image))
    return json.loads(process.stdout)[0] if process.returncode == 0 else None


def _check_architecture(tool: ContainerTool, image: str, info: dict[str, Any]) -> str:
    """The id of an image that runs on this machine."""
    machine = container_tool.architecture()
    if info.get("Architecture") not in (machine, "", None):
        raise _architecture_error(tool, image, info["Architecture"])
    return str(info["Id"])


def _architecture_error(tool: ContainerTool, image: str, architecture: str) -> ImageError:
    machine = container_tool.architecture()
    message = _WRONG_ARCHITECTURE % (image, architecture, machine, tool.kind, machine, image)
    return ImageError(
        message, IMAGE_ARCHITECTURE, image=image, tool=tool.kind, architecture=architecture, machine=machine
    )


def _pull(tool: ContainerTool, image: str, log: Say, allowed: bool) -> dict[str, Any]:
    if not allowed:
        raise _missing_error(tool, image, "the setting image_registries does not allow to pull it")
    log("The image %s is not on this machine: pulling it with %s." % (image, tool.kind))
    process = subprocess.Popen(
        container_tool.pull_command(tool, image),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        universal_newlines=True,
        errors="backslashreplace",
    )
    lines = []
    with process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip():
                lines.append(line.strip())
                if _PROGRESS.match(lines[-1]):  # errors tell of the network
                    log(lines[-1])
    info = _inspect(tool, image) if process.returncode == 0 else None
    if info is None:
        output = "\n".join(lines[-20:])
        if any(message in output for message in _WRONG_PLATFORM):
            raise _architecture_error(tool, image, "other machines alone")
        raise _missing_error(tool, image, _answer(output))
    log("The image %s was pulled." % image)
    return info


def _answer(output: str) -> str:
    """What the registry answered, in the words of its protocol.

    Whether there is a host, a port or another service at the address is not told: it would map the server's network.
    """
    output = output.lower()
    return next((text for signs, text in _ANSWERS if any(sign in output for sign in signs)), _NO_ANSWER)


def _missing_error(tool: ContainerTool, image: str, detail: str) -> ImageError:
    message = _MISSING_IMAGE % (image, detail, tool.kind, image)
    return ImageError(message, IMAGE_MISSING, image=image, tool=tool.kind, detail=detail)


def _log(line: str) -> None:
    sys.stdout.write("%s\n" % line)
    sys.stdout.flush()
