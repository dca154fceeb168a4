"""What the words of gcloud, gsutil, datalab and git mean in `trainshed shell`."""

from __future__ import annotations

import json
import os
import shlex
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from trainshed.cli.toolkit.lazy_group import LazyGroup
from trainshed.cli.workspace import gcloud, gsutil
from trainshed.config import Home
from trainshed.errors import CannotProceedError
from trainshed.proxy.client_config import ServerEndpoints
from trainshed.shell import datalab, git, shims, startup
from trainshed.shell import gcloud as gcloud_lines
from trainshed.shell import gsutil as gsutil_lines
from trainshed.shell.environment import OUTSIDE, ShellTarget, google_cli, inner_environment, outer_environment
from trainshed.testing.processes.resources import cpu_s

#: every line of gcloud in the five documents, with values for their variables
GCLOUD = """
ml-engine models list
config list project --format "value(core.project)"
config set project my-project
ml-engine jobs submit training job_1 --package-path trainer --module-name trainer.task --staging-bucket gs://ml-1 \
--job-dir gs://ml-1/job_1 --runtime-version 1.2 --region us-central1 --config config/config.yaml -- \
--data_dir gs://ml-1/data --output_dir gs://ml-1/job_1 --train_steps 5000
ml-engine models create --regions us-central1 MNIST
ml-engine versions create --origin gs://ml-1/e/1/ --runtime-version=1.2 --model MNIST v1
ml-engine versions set-default --model MNIST v1
ml-engine predict --model MNIST --json-instances request.json
ai-platform models list
ai-platform models delete taxi
ai-platform jobs list
ai-platform jobs cancel train_1
beta ml jobs submit training job_1 --package-path=trainer --module-name=trainer.task --staging-bucket="gs://ml-1" \
--region=us-central1 --config=config.yaml -- --train_data_paths="gs://cloud-ml-data/mnist/train.tfr.gz" \
--eval_data_paths="gs://cloud-ml-data/mnist/eval.tfr.gz" --output_path="gs://ml-1/job_1/output"
beta ml jobs describe --project my-project job_1
compute zones list
ml-engine local train --module-name=trainer.task --package-path=trainer -- --outdir=output
ml-engine local predict --model-dir=output --json-instances=test.json
ml-engine jobs submit training iris_1 --region=us-central1 --module-name=trainer.task --package-path=/p/trainer \
--job-dir=gs://ml-1/out --staging-bucket=gs://ml-1 --scale-tier=BASIC --runtime-version=1.10 -- --outdir=gs://ml-1/out
ml-engine models create iris --regions us-central1
ml-engine versions create v1 --model iris --origin gs://ml-1/e/1/ --runtime-version 1.10
auth print-access-token
""".strip().splitlines()

GSUTIL = """
mb -c regional -l us-east1 gs://ml-1
cp /tmp/data/train.tfrecords gs://ml-1/data/
ls gs://ml-1/job_1/export/Servo
mb gs://ml-1
rm -rf gs://ml-1/job_1
ls gs://ml-1/job_1/output
mb -p my-project -l us-central1 gs://ml-1
-m acl ch -u service-1@example.com:W gs://ml-1
-m cp -r ../data gs://ml-1
-m rm -rf gs://ml-1/out
""".strip().splitlines()


def parsed(group: click.Group, words: list[str]) -> dict[str, Any]:
    """The parameters of the command that the words lead to. A usage error if they are not understood."""
    context = group.make_context("program", words)
    command: click.Command = group
    while isinstance(command, click.Group):
        name, found, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        assert found is not None
        command = found
        context = command.make_context(name, rest, parent=context)
    return context.params


@pytest.mark.parametrize("text", GCLOUD)
def test_every_gcloud_line_of_the_documents_is_understood(text: str) -> None:
    line = gcloud_lines.parse(shlex.split(text))
    assert gcloud_lines.longest(gcloud_lines.NOT_NEEDED, gcloud_lines.names(line.words)) is None
    command = gcloud.resolve_command(gcloud.gcloud, line.words)
    assert command is not None
    assert not isinstance(command, click.Group)
    parsed(gcloud.gcloud, list(line.words))


@pytest.mark.parametrize("text", GSUTIL)
def test_every_gsutil_line_of_the_documents_is_understood(text: str) -> None:
    parsed(gsutil.gsutil, gsutil_lines.parse(shlex.split(text)))


def test_flags_of_every_command_may_stand_anywhere_but_not_among_the_trainers() -> None:
    text = (
        "--quiet ai-platform --project=p jobs --verbosity debug submit training j --format json -- --project theirs -q"
    )
    line = gcloud_lines.parse(text.split())
    assert line.words == ("ai-platform", "jobs", "submit", "training", "j", "--", "--project", "theirs", "-q")
    assert (line.project, line.format, line.quiet, line.notes) == ("p", "json", True, ())
    assert "no effect" in gcloud_lines.parse(["--account", "me@example.com", "version"]).notes[0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("compute", "instances", "create", "x"), "no machines to make"),
        (("ai", "custom-jobs", "create"), "Vertex AI"),
        (("pubsub", "topics", "list"), "What there is"),
        (("projects", "add-iam-policy-binding", "p"), "trainshed auth tokens create"),
    ],
)
def test_what_is_not_served_names_what_to_use(words: tuple[str, ...], said: str) -> None:
    assert gcloud.resolve_command(gcloud.gcloud, words) is None
    assert said in gcloud_lines.refusal(words)


def test_a_word_that_jobs_do_not_know_is_a_bad_command_line() -> None:
    assert isinstance(gcloud.resolve_command(gcloud.gcloud, ("ai-platform", "jobs", "fly")), LazyGroup)


def test_flags_before_a_command_of_gsutil() -> None:
    assert gsutil_lines.parse(["-o", "GSUtil:x=y", "-m", "-D", "cp", "-r", "a", "gs://ml-1"]) == [
        *("-m", "cp", "-r", "a", "gs://ml-1")
    ]
    assert "gsutil stat" in gsutil_lines.refusal("hash")


def test_datalab_is_a_notebook_here() -> None:
    assert datalab.words(["create", "mnist-datalab", "--zone", "us-central1-a"]) == ("notebook",)
    assert datalab.words(["create", "--no-launch-browser", "dlvm", "--port=8081"]) == (
        *("notebook", "--no-browser", "--port", "8081"),
    )
    assert datalab.words(["connect", "dlvm"]) == ("notebook",)
    assert datalab.words(["delete", "dlvm"]) == ("notebook", "--stop")
    assert datalab.words(["beta", "dlvm"]) is None
    assert "datalab create NAME" in datalab.refusal(["beta", "dlvm"])


@pytest.mark.parametrize(
    ("args", "folder"),
    [
        ("clone https://github.com/GoogleCloudPlatform/cloudml-dist-mnist-example", "cloudml-dist-mnist-example"),
        ("clone https://github.com/GoogleCloudPlatform/ai-platform-samples.git", "ai-platform-samples"),
        ("clone --depth 1 https://github.com/eL0ck/Cloud-Data-Science.git mine", "mine"),
        ("clone git@github.com:googlecloudplatform/cloudml-samples.git", "cloudml-samples"),
    ],
)
def test_a_clone_of_a_known_repository_is_a_sample(args: str, folder: str) -> None:
    found = git.clone(args.split())
    assert found is not None
    assert found.folder == folder
    assert found.parts


@pytest.mark.parametrize(
    "args",
    [
        "clone https://github.com/someone/cloudml-dist-mnist-example",
        "clone https://github.com.evil.example/GoogleCloudPlatform/ai-platform-samples",
        "fetch https://github.com/GoogleCloudPlatform/ai-platform-samples",
        "clone",
        "status",
    ],
)
def test_everything_else_is_left_to_git(args: str) -> None:
    assert git.clone(args.split()) is None


REACH = ServerEndpoints(
    url="http://127.0.0.1:1", tls_url="https://127.0.0.1:2", proxy_url="http://127.0.0.1:3", bundle=Path("/b.pem")
)


def place(tmp_path: Path, **more: Any) -> ShellTarget:
    shell = tmp_path / "shell"
    home = Home(tmp_path)
    return ShellTarget(home=home, project="p-one", reach=REACH, shims=shell / "bin", credentials=shell / "c", **more)


def test_the_way_out_leads_back_to_where_the_shell_was_opened(tmp_path: Path) -> None:
    around = {"PATH": "/usr/bin:/bin", "HOME": "/me", "https_proxy": "http://corp:8080"}
    within = inner_environment(around, place(tmp_path), {"PS1": "x"})
    assert within["PATH"] == f"{tmp_path}/shell/bin:/usr/bin:/bin"
    assert within["https_proxy"] == "http://127.0.0.1:3"
    assert within["DEVSHELL_PROJECT_ID"] == within["GOOGLE_CLOUD_PROJECT"] == "p-one"
    assert "TRAINSHED_PROJECT" not in within
    assert outer_environment(within) == around
    activated = {**within, "PATH": f"/venv/bin:{within['PATH']}", "MINE": "1"}
    assert outer_environment(activated) == around | {"PATH": "/venv/bin:/usr/bin:/bin", "MINE": "1"}
    assert outer_environment(around) == around


@pytest.mark.parametrize("said", ["", "x", "[]", "{}", '{"shims": "a", "variables": 1}'])
def test_a_way_out_that_somebody_else_wrote_is_refused(said: str) -> None:
    with pytest.raises(CannotProceedError, match="Unset it"):
        outer_environment({"PATH": "/bin", "TRAINSHED_SHELL": said})


def test_a_project_that_was_chosen_stays_and_no_value_is_a_secret(tmp_path: Path) -> None:
    fixed = place(tmp_path, fixed_project=True)
    within = inner_environment({"PATH": "/bin"}, fixed, google_cli(fixed, REACH))
    assert within["TRAINSHED_PROJECT"] == "p-one"
    assert within["CLOUDSDK_API_ENDPOINT_OVERRIDES_ML"] == "http://127.0.0.1:1/"
    assert within["CLOUDSDK_CONFIG"].startswith(str(tmp_path))
    assert json.loads(within[OUTSIDE])["shims"] == str(tmp_path / "shell" / "bin")


def programs(**more: Any) -> shims.Programs:
    given: dict[str, Any] = {"python": sys.executable, "git": "/usr/bin/git", "sudo": None} | more
    return shims.Programs(**given)


def test_shims_are_programs_of_this_user_and_nothing_else_is_left_there(tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    shims.write(folder, shims.shim_scripts(programs(runtime="2.21", runtime_folder=tmp_path / "r"), google=False))
    assert {path.name for path in folder.iterdir()} == {
        *("datalab", "gcloud", "git", "gsutil", "python", "sudo", "tensorboard", "trainshed"),
    }
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o700 for path in folder.iterdir())
    shims.write(folder, shims.shim_scripts(programs(), google=True))
    assert {path.name for path in folder.iterdir()} == {"datalab", "git", "sudo", "tensorboard", "trainshed"}


def test_the_scripts_of_samples_are_run_without_root(tmp_path: Path) -> None:
    script = tmp_path / "scripts" / "create_records.py"
    script.parent.mkdir()
    script.write_text("#!/bin/sh\necho made by $0 with $*\n")
    script.chmod(0o755)
    real = tmp_path / "real-sudo"
    real.write_text("#!/bin/sh\necho root: $*\n")
    real.chmod(0o755)
    shims.write(tmp_path / "bin", shims.shim_scripts(programs(sudo=str(real)), google=False))

    def sudo(*words: str) -> str:
        command = [str(tmp_path / "bin" / "sudo"), *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True).stdout.strip()

    assert sudo("./scripts/create_records.py", "--limit", "1") == "made by ./scripts/create_records.py with --limit 1"
    assert sudo("apt", "update") == "root: apt update"


def test_a_python_that_uv_looks_at_builds_nothing(tmp_path: Path) -> None:
    shims.write(tmp_path, shims.shim_scripts(programs(runtime="2.21", runtime_folder=tmp_path / "none"), google=False))
    done = subprocess.run([tmp_path / "python", "-V"], env={"TRAINSHED_BUILDING": "1", "PATH": "/bin"}, timeout=60)
    assert done.returncode == 127


def test_an_interactive_bash_has_our_programs_first_whatever_its_own_file_does(tmp_path: Path) -> None:
    (tmp_path / ".bashrc").write_text('PATH="/first:$PATH"\nPS1="mine> "\n')
    start = startup.interactive("/bin/bash", tmp_path / "bin", tmp_path / "shell", zdotdir=str(tmp_path))
    for path, text in start.files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    done = subprocess.run(
        [*start.argv, "-i", "-c", 'echo "$PATH|$PS1"'],
        env={"HOME": str(tmp_path), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
    )
    assert done.stdout == f"{tmp_path}/bin:/first:/usr/bin:/bin|(trainshed) mine> \n"


def test_a_shim_costs_little_more_than_python_and_click(tmp_path: Path) -> None:
    shims.write(tmp_path, shims.shim_scripts(programs(), google=False))

    env = {**os.environ, "TRAINSHED_HOME": str(tmp_path / "home")}
    floor = cpu_s([sys.executable, "-c", "import click, json, tomllib, http.client"], env)
    assert cpu_s([str(tmp_path / "gcloud"), "version"], env) < 3 * floor
