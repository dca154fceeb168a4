"""buckets mv, rb and acl: gsutil's commands that change buckets and objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from trainshed.cli.toolkit.lazy_group import Command
from trainshed.cli.toolkit.options import CommandContext, project_option, session
from trainshed.cli.toolkit.output import say
from trainshed.cli.toolkit.transfers import run
from trainshed.client.copy_plan import plan_copy
from trainshed.client.urls import Url
from trainshed.errors import InvalidArgumentError


@click.command(cls=Command)
@click.argument("words", nargs=-1, required=True, metavar="SOURCE... DESTINATION")
@click.option("--progress/--no-progress", default=None, help="Show a bar. Default: on a terminal.")
@project_option
def mv(words: tuple[str, ...], progress: bool | None, project: str | None) -> None:
    """Move files and objects: copy them, with folders, and remove the originals once all are copied.

    \b
    Example:
      trainshed buckets mv gs://my-bucket/old gs://my-bucket/new
    """
    if len(words) < 2:
        raise click.UsageError("The mv command needs a source and a destination.")
    context = session(project)
    transfers = plan_copy(context.storage, context.project, words[:-1], words[-1], recursive=True)
    if any(transfer.source.url.is_stream or transfer.to.is_stream for transfer in transfers):
        raise InvalidArgumentError("A stream can't be moved. Use cp.")
    if same := [transfer for transfer in transfers if transfer.source.url == transfer.to]:
        raise InvalidArgumentError(f"{same[0].to} is to be moved onto itself. Name another destination.")
    run(context.storage, transfers, bar=progress, quiet=_is_quiet())
    for transfer in transfers:
        origin = transfer.source.url
        if origin.bucket is None:
            Path(origin.name).unlink()
        else:
            context.storage.delete(origin.bucket, origin.name)


def _is_quiet() -> bool:
    parent = click.get_current_context().parent
    return bool(parent and parent.params.get("quiet"))


@click.command(cls=Command)
@click.argument("urls", nargs=-1, required=True, metavar="gs://BUCKET...")
@project_option
def rb(urls: tuple[str, ...], project: str | None) -> None:
    """Remove empty buckets. `rm -r` removes a bucket with its objects.

    \b
    Example:
      trainshed buckets rb gs://my-bucket
    """
    context = session(project)
    for bucket in [_bucket(text) for text in urls]:
        say(f"Removing gs://{bucket}/...")
        context.storage.delete_bucket(bucket)


def _bucket(text: str) -> str:
    url = Url.cloud(text)
    if url.name.strip("/"):
        raise InvalidArgumentError(f"{url} is not a bucket alone. Write gs://{url.bucket}.")
    assert url.bucket is not None
    return url.bucket


@click.command("ch", cls=Command)
@click.argument("urls", nargs=-1, required=True, metavar="gs://BUCKET...")
@click.option("-u", "users", multiple=True, metavar="USER:PERMISSION", help="Accepted as in gsutil; may be repeated.")
@click.option("-g", "groups", multiple=True, metavar="GROUP:PERMISSION", help="Accepted as in gsutil; may be repeated.")
@click.option("-p", "teams", multiple=True, metavar="TEAM:PERMISSION", help="Accepted as in gsutil; may be repeated.")
@click.option("-d", "removed", multiple=True, metavar="WHO", help="Accepted as in gsutil; may be repeated.")
@click.option("-r", "-R", "recursive", is_flag=True, help="Accepted as in gsutil.")
@click.option("-f", "force", is_flag=True, help="Accepted as in gsutil.")
@project_option
def acl_ch(urls: tuple[str, ...], project: str | None, **ignored: Any) -> None:
    """Accepted as in gsutil; tokens decide who may read and write, and jobs have one of their own project.

    \b
    Example:
      trainshed buckets acl ch -u service-1@example.com:W gs://my-bucket
    """
    _report_unchanged(session(project), urls)


@click.command("set", cls=Command)
@click.argument("acl", metavar="ACL")
@click.argument("urls", nargs=-1, required=True, metavar="gs://BUCKET...")
@click.option("-r", "-R", "recursive", is_flag=True, help="Accepted as in gsutil.")
@click.option("-a", "every_version", is_flag=True, help="Accepted as in gsutil.")
@project_option
def acl_set(acl: str, urls: tuple[str, ...], project: str | None, **ignored: Any) -> None:
    """Accepted as in gsutil; tokens decide who may read and write, and jobs have one of their own project.

    \b
    Example:
      trainshed buckets acl set private gs://my-bucket
    """
    _report_unchanged(session(project), urls)


def _report_unchanged(context: CommandContext, urls: tuple[str, ...]) -> None:
    for bucket in dict.fromkeys(str(Url.cloud(text).bucket) for text in urls):
        context.storage.bucket(bucket)  # a missing bucket is an error
        say(
            f"gs://{bucket} stays as it is: the jobs of its project can read and write it already, and tokens decide "
            "about everyone else (trainshed auth tokens)."
        )
