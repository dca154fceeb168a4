"""Models in each form that can be deployed, on a server, beside the answers of the frameworks that wrote them.

python bench/formats.py     # about 4 minutes; needs runtime torch

It writes the table of the page on prediction, and fails if an answer is further from its framework's than `WITHIN`.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from report import DOCS, replace_between
from serving import CACHE, PEERS
from serving_models import running_server
from trainshed.runtimes.uv import find_uv
from trainshed.testing.cache import runtime_python
from trainshed.testing.workloads.deployer import Deployer
from trainshed.testing.workloads.submitter import wheel, wheel_name

PAGE = DOCS / "prediction.md"
RUNTIMES = {"tensorflow": "2.21", "torch": "torch"}
MLFLOW = "mlflow-skinny==3.17.2"
WITHIN = 1e-5  #: of the largest magnitude that the framework answers
NETWORK = PEERS / "digits_network"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """One form: its loader, and how far its answers are from the framework's."""

    form: str
    loader: str
    together: float  #: the greatest difference, of all rows in one request
    alone: float  #: of one row a request
    checked: str  #: what the version says of its own check

    @property
    def line(self) -> str:
        return f"| {self.form} | {self.loader} | {_shown(self.together)} | {_shown(self.alone)} | {self.checked} |"


def _shown(difference: float) -> str:
    return f"{difference:.1e}" if difference else "none"


def installed(runtime: str) -> Path:
    """The folder with MLflow for a runtime. The first use fills it."""
    site = CACHE / f"mlflow-{runtime}"
    if not site.exists():
        command = [str(find_uv()), "pip", "install", "--quiet", "--python", str(runtime_python(runtime))]
        subprocess.run([*command, "--target", str(site), MLFLOW], check=True)
    return site


def written(group: str, folder: Path, site: Path) -> dict[str, Any]:
    """Have the models written in their runtime. Returns the answers of the frameworks, by the name of the folder."""
    folder.mkdir()
    env = os.environ | {
        "PYTHONPATH": f"{site}:{PEERS}",
        "MLFLOW_DISABLE_TELEMETRY": "true",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    python, program = str(runtime_python(RUNTIMES[group])), str(PEERS / "formats.py")
    command = [python, "-W", "ignore", program, str(folder), group]
    subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)
    own: dict[str, Any] = json.loads((folder / "own.json").read_text())
    return own


def difference(answers: list[Any], own: np.ndarray) -> float:
    """The greatest difference, in parts of the largest magnitude; of classes, the share that differs."""
    values = np.asarray([_value(answer) for answer in answers])
    if not np.issubdtype(own.dtype, np.floating):
        return float(np.mean(values != own))
    return float(np.abs(values.reshape(own.shape) - own).max() / np.abs(own).max())


def _value(answer: Any) -> Any:
    """The output of a model that has one, whether it has a name or not."""
    return next(iter(answer.values())) if isinstance(answer, dict) else answer


def compared(deployer: Deployer, name: str, own: dict[str, Any], rows: list[list[float]]) -> Compared:
    details, answer = deployer.details(name), np.asarray(own["answer"])
    together = difference(deployer.predict(name, *rows), answer)
    alone = difference([deployer.predict(name, row)[0] for row in rows[:50]], answer[:50])
    parity = details["parity"]
    return Compared(
        form=own["form"],
        loader=details["detail"].partition(" in runtime ")[0],
        together=together,
        alone=alone,
        checked="" if not parity or parity["difference"] is None else f"{parity['difference']:.1e}",
    )


def deployed(deployer: Deployer, group: str, folder: Path, names: list[str]) -> None:
    """Create a version of each folder, all at the same time."""
    package = deployer.upload(wheel_name(NETWORK.name), wheel(NETWORK))
    started = []
    for name in names:
        fields: dict[str, Any] = {"runtimeVersion": RUNTIMES[group]}
        if name == "state_dict":
            fields["packageUris"] = [package]
        started.append(deployer.create(name, deployer.upload_folder(folder / name, name), **fields))
    for operation in started:
        finished = deployer.finish(operation)
        if "response" not in finished:
            raise RuntimeError(finished["error"]["message"])


def main() -> None:
    lines: list[Compared] = []
    with tempfile.TemporaryDirectory() as name, running_server(Path(name)) as server:
        scratch = Path(name)
        for group, runtime in RUNTIMES.items():
            site = installed(runtime)
            own = written(group, scratch / group, site)
            rows = json.loads((scratch / group / "rows.json").read_text())
            deployer = Deployer(server, f"bench-{group}", scratch)
            deployed(deployer, group, scratch / group, list(own))
            lines += [compared(deployer, each, own[each], rows) for each in own]
    heads = ("form", "served by", "200 rows in a request", "one row a request", "checked at its creation")
    table = [f"| {' | '.join(heads)} |", "|---|---|---|---|---|", *(each.line for each in lines)]
    replace_between(PAGE, "formats", "\n" + "\n".join(table) + "\n")
    print(*table, sep="\n")
    if far := [each.form for each in lines if max(each.together, each.alone) > WITHIN]:
        raise SystemExit(f"Further than {WITHIN} from their frameworks: {', '.join(far)}.")


if __name__ == "__main__":
    main()
