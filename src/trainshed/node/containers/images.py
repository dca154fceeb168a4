"""The images that a job runs: found on this machine or pulled, looked at, and from then on known by what they hold."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from ..supervisor.failure_message import write_install_failure
from . import tool as container_tool
from .tool import ContainerTool, NoContainerToolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Optional

    Say = Callable[[str], None]

FOUND = "containers.json"  #: in the attempt's folder: the tool, and the id of each image
_NOT_FOR_US = ("no image found in manifest list", "no matching manifest", "no image found in image index")

_MISSING = (
    "The image %s is not on this machine, and it can't be pulled: %s. Build it here, with `%s build -t %s .`, or check "
    "its name and whether this machine reaches the registry."
)
_FOREIGN = (
    "The image %s is made for %s, and this machine is %s. Build it for this machine: `%s build --platform linux/%s "
    "-t %s .`"
)


class ImageError(Exception):
    """An image that can't be had, or not be run here. The text is for people."""


def prepare_images(folder: str) -> int:
    """Find the images that the spec in `folder` names, and write them down there. 1: not all of them can be had; the
    reason is on stderr and in `install.error`."""
    with open(os.path.join(folder, "spec.json"), "rb") as file:
        spec = json.loads(file.read().decode())
    wanted = sorted({each["container"]["image"] for each in spec["replicas"]})
    try:
        tool, ids = ensure_images(container_tool.find(spec["containers"]["tool"]), wanted, _say)
    except (NoContainerToolError, ImageError) as exc:
        write_install_failure(folder, str(exc))
        sys.stderr.write("%s\n" % exc)
        return 1
    draft = os.path.join(folder, ".%s" % FOUND)
    with open(draft, "w") as out:
        json.dump({"tool": tool.words(), "images": ids}, out)
    os.rename(draft, os.path.join(folder, FOUND))
    return 0


def ensure_images(tools: list[ContainerTool], wanted: list[str], say: Say) -> tuple[ContainerTool, dict[str, str]]:
    """The tool that has all of these images, and the id of each. What no tool has is pulled by the first one.

    `ImageError` if one can't be had, or is for another kind of machine.
    """
    for tool in tools:
        found = {image: _known(tool, image) for image in wanted}
        if all(found.values()):
            break
    else:
        tool = tools[0]
        found = {image: _known(tool, image) or _pulled(tool, image, say) for image in wanted}
    return tool, {image: _checked(tool, image, about) for image, about in found.items() if about}


def _known(tool: ContainerTool, image: str) -> Optional[dict[str, Any]]:
    """What the tool knows of an image on this machine; None if it has none of that name."""
    done = container_tool.run_tool(container_tool.inspect_command(tool, image))
    return json.loads(done.stdout)[0] if done.returncode == 0 else None


def _checked(tool: ContainerTool, image: str, about: dict[str, Any]) -> str:
    """The id of an image that runs here."""
    here = container_tool.architecture()
    if about.get("Architecture") not in (here, "", None):
        raise _foreign(tool, image, about["Architecture"])
    return str(about["Id"])


def _foreign(tool: ContainerTool, image: str, architecture: str) -> ImageError:
    here = container_tool.architecture()
    return ImageError(_FOREIGN % (image, architecture, here, tool.kind, here, image))


def _pulled(tool: ContainerTool, image: str, say: Say) -> dict[str, Any]:
    say("The image %s is not on this machine: pulling it with %s." % (image, tool.kind))
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
                say(line.strip())
    about = _known(tool, image) if process.returncode == 0 else None
    if about is None:
        said = "\n".join(lines[-20:])
        if any(words in said for words in _NOT_FOR_US):
            raise _foreign(tool, image, "other machines alone")
        raise ImageError(_MISSING % (image, container_tool.last_line(said), tool.kind, image))
    say("The image %s was pulled." % image)
    return about


def _say(line: str) -> None:
    sys.stdout.write("%s\n" % line)
    sys.stdout.flush()
