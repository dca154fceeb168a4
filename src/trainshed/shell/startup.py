"""How each shell is started so that our programs stay first on the PATH whatever its own files do, and it says so."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

PROMPT = "(trainshed) "


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellStart:
    """The words that start a shell, variables of its own, and files that must be there first, by path."""

    argv: tuple[str, ...]
    variables: dict[str, str]
    files: dict[Path, str]


def scripted(shell: str, command: str | None) -> ShellStart:
    """A shell that runs one command line, or what comes on stdin, and ends."""
    return ShellStart(argv=(shell, "-c", command) if command is not None else (shell,), variables={}, files={})


def interactive(shell: str, shims: Path, folder: Path, *, zdotdir: str) -> ShellStart:
    """A shell for a person. `folder` is for files of ours; `zdotdir` is where zsh finds the user's own."""
    first = shlex.quote(str(shims))
    name = Path(shell).name
    if name == "bash":
        rc = folder / "bashrc"
        text = f'[ -f ~/.bashrc ] && . ~/.bashrc\nPATH={first}:"$PATH"\nPS1={shlex.quote(PROMPT)}"$PS1"\n'
        return ShellStart(argv=(shell, "--rcfile", str(rc)), variables={}, files={rc: text})
    if name == "zsh":
        theirs = shlex.quote(zdotdir)
        own = {
            folder / "zsh" / ".zshenv": f"[ -f {theirs}/.zshenv ] && . {theirs}/.zshenv\n",
            folder / "zsh" / ".zshrc": (
                f"ZDOTDIR={theirs}\n[ -f {theirs}/.zshrc ] && . {theirs}/.zshrc\n"
                f'PATH={first}:"$PATH"\nPROMPT={shlex.quote(PROMPT)}"$PROMPT"\n'
            ),
        }
        return ShellStart(argv=(shell,), variables={"ZDOTDIR": str(folder / "zsh")}, files=own)
    if name == "fish":
        words = (
            f"set -gx PATH {first} $PATH; functions -c fish_prompt trainshed_inner_prompt; "
            f"function fish_prompt; echo -n {shlex.quote(PROMPT)}; trainshed_inner_prompt; end"
        )
        return ShellStart(argv=(shell, "-C", words), variables={}, files={})
    return ShellStart(argv=(shell,), variables={"PS1": f"{PROMPT}$ "}, files={})
