"""gsutil's command lines: flags before the command, and alternatives to unsupported commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

_IGNORED_FLAGS_WITH_VALUE = ("-o", "-h", "-i", "-u")  #: flags of every command that have no effect here
_IGNORED_FLAGS = ("-D", "-DD", "-d")


def parse(args: Sequence[str]) -> list[str]:
    """Drop the flags before the command that have no effect here. `-m` and `-q` stay."""
    rest = list(args)
    flags: list[str] = []
    while rest and rest[0].startswith("-"):
        flag = rest.pop(0)
        if flag in _IGNORED_FLAGS_WITH_VALUE:
            del rest[:1]
        elif flag not in _IGNORED_FLAGS:
            flags.append(flag)
    return flags + rest


#: unsupported commands of gsutil, and their alternatives
INSTEAD: Mapping[str, str] = {
    **dict.fromkeys(("defacl", "iam", "ubla", "pap"), "Tokens decide who may read and write: `trainshed auth tokens`."),
    **dict.fromkeys(("config", "update"), "There is nothing to set up: this gsutil speaks to your own server."),
    **dict.fromkeys(
        ("versioning", "lifecycle", "retention", "bucketpolicyonly", "rpo", "autoclass"), "Objects have one version."
    ),
    **dict.fromkeys(("signurl", "web", "cors", "label", "logging", "notification", "requesterpays", "kms"), ""),
    "compose": "Concatenate the files with cat, and copy the result in: cat a b | gsutil cp - gs://BUCKET/NAME.",
    "hash": "`gsutil stat` shows the checksums of objects.",
    "hmac": "`trainshed auth tokens create` makes a token.",
    "setmeta": "Copy the object again to change what is known about it.",
    "rewrite": "`gsutil cp` copies an object within a bucket.",
    "perfdiag": "The disk of this machine decides.",
}


def refusal(word: str) -> str:
    """Return a sentence about an unsupported command."""
    remedy = INSTEAD.get(word) or "`gsutil help` shows what there is."
    return f"Trainshed does not serve `gsutil {word}`. {remedy}"
