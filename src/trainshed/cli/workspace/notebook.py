"""notebook: JupyterLab on this machine, in the background, set up for the server."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import click

from trainshed.cli.toolkit.browser import open_browser
from trainshed.cli.toolkit.lazy_group import Command
from trainshed.cli.toolkit.options import CommandContext, project_option, session
from trainshed.cli.toolkit.output import say, show_build
from trainshed.cli.workspace.shell import shell_target
from trainshed.config import environment
from trainshed.local import notebook as lab
from trainshed.local.processes import check_port
from trainshed.sample_files import samples_folder
from trainshed.shell import shims
from trainshed.shell.environment import ShellTarget, inner_environment, outer_environment


@click.command(cls=Command)
@click.option("--port", type=click.IntRange(1, 65535), metavar="N", help="Port. Default: 8888, or a free one.")
@click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="The folder of your notebooks. Default: `notebooks` in the state folder.",
)
@click.option("--no-browser", is_flag=True, help="Print the address, and open no browser.")
@click.option("--stop", is_flag=True, help="Stop the running notebook, with its kernels.")
@project_option
def notebook(port: int | None, folder: Path | None, no_browser: bool, stop: bool, project: str | None) -> None:
    """Start JupyterLab in the background and print its address, which holds its token.

    The server is started if none runs. Notebooks find it without a word: `import trainshed; ty = trainshed.connect()`,
    and gs:// means its buckets. The folder gets copies of the sample notebooks; nothing of yours is written over. The
    first use builds an environment for it. It listens on this machine only.

    \b
    Example:
      trainshed notebook
      trainshed notebook --dir ~/work --no-browser
      trainshed notebook --stop
    """
    context = session(project)
    home = context.settings.home
    if stop:
        say("The notebook has stopped." if lab.stop(home) else "No notebook is running.")
        return
    home.create()
    target = shell_target(context, home.notebook / "bin", fixed_project=True)
    jupyter = lab.running(home)
    if jupyter is not None:
        say(f"A notebook is running on {jupyter.folder} already. `trainshed notebook --stop` stops it.")
    else:
        jupyter = _start(context, target, (folder or home.notebooks).expanduser().absolute(), port)
        say(f"JupyterLab runs on {jupyter.folder}. `trainshed notebook --stop` stops it.")
    click.echo(jupyter.url)
    if not no_browser and not open_browser(jupyter.url, home.notebook / "open.html"):
        say("No browser could be opened: open the address above in one.")


def _start(context: CommandContext, target: ShellTarget, folder: Path, port: int | None) -> lab.Notebook:
    home = target.home
    if port is not None:
        check_port(lab.HOST, port)
    outer_env = outer_environment(environment())
    with show_build("notebook") as progress:
        python = lab.interpreter(home, progress)
    for name in lab.copy_samples(samples_folder() / "notebooks", folder):
        say(f"Copied {name} to {folder}")
    git, sudo = (shutil.which(name, path=outer_env.get("PATH")) for name in ("git", "sudo"))
    shims.write(
        target.shims, shims.shim_scripts(shims.Programs(python=sys.executable, git=git, sudo=sudo), google=False)
    )
    path = f"{python.parent}:{outer_env.get('PATH', '')}"
    # no token: the client finds it as the command line does, and never sends the owner's to another machine
    own = {name: value for name, value in outer_env.items() if name != "PYTHONPATH"}
    env = inner_environment({**own, "PATH": path}, target, {"TRAINSHED_URL": context.client.url})
    say("Starting JupyterLab...")
    terminal = (sys.executable, "-P", "-m", "trainshed.cli", "shell")
    return lab.start(home, lab.NotebookSpec(python=python, folder=folder, port=port, env=env, terminal=terminal))
