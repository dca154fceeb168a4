"""models get-iam-policy, set-iam-policy, add-iam-policy-binding, remove-iam-policy-binding."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from trainshed.cli.models.commands import path_of
from trainshed.cli.toolkit.lazy_group import Command
from trainshed.cli.toolkit.options import CommandContext, format_option, project_option, region_option, session
from trainshed.cli.toolkit.output import say, show_one
from trainshed.client.submission import read_yaml
from trainshed.errors import InvalidArgumentError, NotFoundError

F = TypeVar("F", bound=Callable[..., Any])


def _binding_options(command: F) -> F:
    for option in (
        click.option("--role", required=True, metavar="ROLE", help="Such as roles/ml.viewer."),
        click.option("--member", required=True, metavar="MEMBER", help="user:NAME or allAuthenticatedUsers."),
    ):
        command = option(command)
    return command


@click.command(cls=Command)
@click.argument("model")
@project_option
@region_option
@format_option
def get(model: str, project: str | None, format: str | None) -> None:
    """Show who holds which role on a model.

    \b
    Example:
      trainshed models get-iam-policy MNIST
    """
    show_one(_read(session(project), model), format=format)


@click.command(cls=Command)
@click.argument("model")
@click.argument("policy_file", type=click.Path(path_type=Path))
@project_option
@region_option
@format_option
def set_(model: str, policy_file: Path, project: str | None, format: str | None) -> None:
    """Replace the policy of a model by the one in a JSON or YAML file.

    \b
    Example:
      trainshed models get-iam-policy MNIST --format json > policy.json
      trainshed models set-iam-policy MNIST policy.json
    """
    policy, _ = read_yaml(policy_file)
    if not isinstance(policy, dict):
        raise InvalidArgumentError(f"[{policy_file}] must hold a policy: a map with bindings.")
    _write(session(project), model, policy, format)


@click.command(cls=Command)
@click.argument("model")
@project_option
@region_option
@_binding_options
@format_option
def add(model: str, project: str | None, member: str, role: str, format: str | None) -> None:
    """Give someone a role on a model.

    \b
    Example:
      trainshed models add-iam-policy-binding MNIST --member user:ann --role roles/ml.viewer
    """
    context = session(project)
    policy = _read(context, model)
    bindings = policy.setdefault("bindings", [])
    binding = next((each for each in bindings if each["role"] == role and "condition" not in each), None)
    if binding is None:
        bindings.append({"role": role, "members": [member]})
    elif member not in binding["members"]:
        binding["members"].append(member)
    _write(context, model, policy, format)


@click.command(cls=Command)
@click.argument("model")
@project_option
@region_option
@_binding_options
@format_option
def remove(model: str, project: str | None, member: str, role: str, format: str | None) -> None:
    """Take a role on a model away from someone.

    \b
    Example:
      trainshed models remove-iam-policy-binding MNIST --member user:ann --role roles/ml.viewer
    """
    context = session(project)
    policy = _read(context, model)
    bindings = policy.get("bindings", [])
    binding = next((each for each in bindings if each["role"] == role and member in each["members"]), None)
    if binding is None:
        raise NotFoundError(f"Policy binding with the specified member [{member}] and role [{role}] was not found.")
    binding["members"].remove(member)
    policy["bindings"] = [each for each in bindings if each["members"]]
    _write(context, model, policy, format)


def _read(context: CommandContext, model: str) -> dict[str, Any]:
    policy: dict[str, Any] = context.client.call("GET", f"{path_of(context, model)}:getIamPolicy")
    return policy


def _write(context: CommandContext, model: str, policy: dict[str, Any], format: str | None) -> None:
    """Write a policy. It has the etag of the read, so a concurrent change is a conflict and never lost."""
    body = {"policy": policy, "updateMask": "bindings,etag"}
    written = context.client.call("POST", f"{path_of(context, model)}:setIamPolicy", body=body)
    say(f"Updated IAM policy for model [{model}].")
    show_one(written, format=format)
