"""How each shell is started, so that the shims stay first on the PATH after its own startup files, with a prompt."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

PROMPT = "(trainshed) "


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellStart:
    """The command that starts a shell, its variables, and the files it needs, by path."""

    argv: tuple[str, ...]
    variables: dict[str, str]
    files: dict[Path, str]


def scripted(shell: str, command: str | None) -> ShellStart:
    """Return a shell that runs one command line, or its stdin, and exits."""
    return ShellStart(argv=(shell, "-c", command) if command is not None else (shell,), variables={}, files={})


def interactive(shell: str, shims: Path, folder: Path, *, zdotdir: str) -> ShellStart:
    """Return a shell for a person. `folder` is for generated files; `zdotdir` is where zsh finds the user's own."""
    first = shlex.quote(str(shims))
    name = Path(shell).name
    if name == "bash":
        rc = folder / "bashrc"
        text = f'[ -f ~/.bashrc ] && . ~/.bashrc\nPATH={first}:"$PATH"\nPS1={shlex.quote(PROMPT)}"$PS1"\n'
        return ShellStart(argv=(shell, "--rcfile", str(rc)), variables={}, files={rc: text})
    if name == "zsh":
        user_zdotdir = shlex.quote(zdotdir)
        files = {
            folder / "zsh" / ".zshenv": f"[ -f {user_zdotdir}/.zshenv ] && . {user_zdotdir}/.zshenv\n",
            folder / "zsh" / ".zshrc": (
                f"ZDOTDIR={user_zdotdir}\n[ -f {user_zdotdir}/.zshrc ] && . {user_zdotdir}/.zshrc\n"
                f'PATH={first}:"$PATH"\nPROMPT={shlex.quote(PROMPT)}"$PROMPT"\n'
            ),
        }
        return ShellStart(argv=(shell,), variables={"ZDOTDIR": str(folder / "zsh")}, files=files)
    if name == "fish":
        init = (
            f"set -gx PATH {first} $PATH; functions -c fish_prompt trainshed_inner_prompt; "
            f"function fish_prompt; echo -n {shlex.quote(PROMPT)}; trainshed_inner_prompt; end"
        )
        return ShellStart(argv=(shell, "-C", init), variables={}, files={})
    return ShellStart(argv=(shell,), variables={"PS1": f"{PROMPT}$ "}, files={})
