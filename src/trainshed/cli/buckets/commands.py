"""buckets mb, cp, rsync, cat, rm: gsutil's commands. The others are in `listing` and `changes`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from trainshed.cli.toolkit.lazy_group import Command, LazyGroup
from trainshed.cli.toolkit.options import CommandContext, project_option, session
from trainshed.cli.toolkit.output import say, sentence
from trainshed.cli.toolkit.transfers import run
from trainshed.client.copy_plan import Transfer, plan_copy
from trainshed.client.parallel import in_parallel
from trainshed.client.storage import crc32c, encode_checksum
from trainshed.client.urls import CopySource, Url, expand, match_buckets
from trainshed.errors import InvalidArgumentError, NotFoundError, TrainshedError

_TABLE: dict[str, tuple[Any, str]] = {
    "mb": ("buckets.commands:mb", "Make buckets."),
    "ls": ("buckets.listing:ls", "List buckets, and objects in them."),
    "cp": ("buckets.commands:cp", "Copy files and objects."),
    "cat": ("buckets.commands:cat", "Print objects."),
    "rm": ("buckets.commands:rm", "Remove objects, folders and buckets."),
    "rsync": ("buckets.commands:rsync", "Make one folder hold what another one holds."),
    "mv": ("buckets.changes:mv", "Move files and objects."),
    "rb": ("buckets.changes:rb", "Remove empty buckets."),
    "du": ("buckets.listing:du", "Show how much space objects take."),
    "stat": ("buckets.listing:stat", "Show what is known about objects."),
    "acl": (
        {
            "ch": ("buckets.changes:acl_ch", "Accepted as in gsutil; tokens decide who may read and write."),
            "set": ("buckets.changes:acl_set", "Accepted as in gsutil; tokens decide who may read and write."),
        },
        "Accepted as in gsutil; tokens decide who may read and write.",
    ),
}


@click.group(cls=LazyGroup, table=_TABLE)
@click.option("-m", "parallel", is_flag=True, help="Accepted as in gsutil. Copies always run in parallel.")
@click.option("-q", "--quiet", is_flag=True, help="Print errors only.")
@click.pass_context
def buckets(ctx: click.Context, parallel: bool, quiet: bool) -> None:
    """Make buckets and copy files in and out, in gsutil's grammar.

    \b
    Example:
      trainshed buckets mb gs://my-bucket
      trainshed buckets cp -r data gs://my-bucket
      trainshed buckets ls gs://my-bucket/data
    """


def _is_quiet() -> bool:
    parent = click.get_current_context().parent
    return bool(parent and parent.params.get("quiet"))


def _note(text: str) -> None:
    if not _is_quiet():
        say(text)


@click.command(cls=Command)
@click.argument("urls", nargs=-1, required=True, metavar="gs://BUCKET...")
@click.option("-l", "--location", metavar="LOCATION", help="Kept with the bucket; the files are on this machine.")
@click.option("-c", "-s", "--storage-class", metavar="CLASS", help="Kept with the bucket.")
@click.option("-p", "--project", metavar="ID", help="The project that the bucket belongs to.")
def mb(urls: tuple[str, ...], location: str | None, storage_class: str | None, project: str | None) -> None:
    """Make buckets.

    \b
    Example:
      trainshed buckets mb -l us-east1 gs://my-bucket
    """
    context = session(project)
    for url in [Url.cloud(text) for text in urls]:
        if url.name.strip("/"):
            raise InvalidArgumentError(f"{url} is not a bucket alone. Write gs://{url.bucket}.")
        _note(f"Creating gs://{url.bucket}/...")
        body = {"name": url.bucket, "location": location, "storageClass": storage_class and storage_class.upper()}
        context.storage.create_bucket(context.project, {key: value for key, value in body.items() if value is not None})


@click.command(cls=Command)
@click.argument("words", nargs=-1, required=True, metavar="SOURCE... DESTINATION")
@click.option("-r", "-R", "recursive", is_flag=True, help="Copy folders recursively.")
@click.option("--progress/--no-progress", default=None, help="Show a bar. Default: on a terminal.")
@project_option
def cp(words: tuple[str, ...], recursive: bool, progress: bool | None, project: str | None) -> None:
    """Copy files and objects. One side at least is a gs:// name; - is stdin or stdout.

    \b
    Example:
      trainshed buckets cp -r data gs://my-bucket/
      trainshed buckets cp "gs://my-bucket/data/*.csv" .
    """
    if len(words) < 2:
        raise click.UsageError("The cp command needs a source and a destination.")
    context = session(project)
    transfers = plan_copy(context.storage, context.project, words[:-1], words[-1], recursive=recursive)
    run(context.storage, transfers, bar=progress, quiet=_is_quiet() or transfers[0].to.is_stream)


@click.command(cls=Command)
@click.argument("urls", nargs=-1, required=True, metavar="gs://BUCKET/NAME...")
@project_option
def cat(urls: tuple[str, ...], project: str | None) -> None:
    """Print objects to stdout.

    \b
    Example:
      trainshed buckets cat gs://my-bucket/data/train.csv
    """
    context = session(project)
    for url in urls:
        for source in expand(context.storage, context.project, Url.cloud(url), recursive=False):
            context.storage.download(source.meta, sys.stdout.buffer)
    sys.stdout.buffer.flush()


@click.command(cls=Command)
@click.argument("urls", nargs=-1, required=True, metavar="gs://BUCKET/NAME...")
@click.option("-r", "-R", "recursive", is_flag=True, help="Remove folders and buckets recursively.")
@click.option("-f", "force", is_flag=True, help="Continue after errors; the last line and the exit status report them.")
@project_option
def rm(urls: tuple[str, ...], recursive: bool, force: bool, project: str | None) -> None:
    """Remove objects, folders and buckets.

    \b
    Example:
      trainshed buckets rm -r gs://my-bucket/old
    """
    context = session(project)
    failed = sum(_remove(context, Url.cloud(text), recursive, force) for text in urls)
    if failed:
        raise TrainshedError(f"{failed} files/objects could not be removed.")


def _remove(context: CommandContext, url: Url, recursive: bool, force: bool) -> int:
    """Remove what one URI matches. Returns the number of failures, if `force` continues after them."""
    failures: list[str] = []
    quiet = _is_quiet()

    def remove(source: CopySource) -> None:
        assert source.url.bucket is not None
        if not quiet:
            say(f"Removing {source.url}...")
        try:
            context.storage.delete(source.url.bucket, source.url.name)
        except TrainshedError as exc:
            if not force:
                raise
            failures.append(f"{source.url}: {sentence(exc)}")

    assert url.bucket is not None
    whole_bucket = recursive and not url.name
    try:
        sources = list(expand(context.storage, context.project, url, recursive=recursive))
    except TrainshedError as exc:
        if not (isinstance(exc, NotFoundError) and whole_bucket):  # an empty bucket matches nothing
            if force:
                say(f"{url}: {sentence(exc)}")
                return 1
            raise
        sources = []
    in_parallel(remove, sources)
    for failure in sorted(failures):
        say(failure)
    for bucket in match_buckets(context.storage, context.project, url.bucket) if whole_bucket else ():
        _note(f"Removing gs://{bucket}/...")
        context.storage.delete_bucket(bucket)
    return len(failures)


@click.command(cls=Command)
@click.argument("source")
@click.argument("destination")
@click.option("-r", "-R", "recursive", is_flag=True, help="Recursively.")
@click.option("-d", "delete", is_flag=True, help="Remove from the destination what the source does not have.")
@click.option("--progress/--no-progress", default=None, help="Show a bar. Default: on a terminal.")
@project_option
def rsync(source: str, destination: str, project: str | None, progress: bool | None, **flags: bool) -> None:
    """Make one folder hold what another one holds. What has the same size and checksum is not copied again.

    \b
    Example:
      trainshed buckets rsync -r -d data gs://my-bucket/data
    """
    context = session(project)
    origin, to = Url.parse(source), Url.parse(destination)
    if not (origin.is_cloud or to.is_cloud):
        raise InvalidArgumentError("Both sides are local: one of them must be a gs:// name.")
    if not origin.is_cloud and not Path(origin.name).is_dir():
        raise NotFoundError(f"arg ({source}) does not name a directory, bucket, or bucket subdir.")
    _note("Building synchronization state...")
    source_items, target_items = (
        _contents(context, origin, flags["recursive"]),
        _contents(context, to, flags["recursive"]),
    )
    _note("Starting synchronization...")
    changed = [
        Transfer(item, to.below(name))
        for name, item in source_items.items()
        if name not in target_items or _differ(item, target_items[name])
    ]
    if changed:
        run(context.storage, changed, bar=progress, quiet=_is_quiet())
    for name in sorted(set(target_items) - set(source_items)) if flags["delete"] else ():
        _note(f"Removing {target_items[name].url.display}")
        if to.bucket is None:
            Path(target_items[name].url.name).unlink()
        else:
            context.storage.delete(to.bucket, target_items[name].url.name)


def _contents(context: CommandContext, folder: Url, recursive: bool) -> dict[str, CopySource]:
    """Return the contents of a folder, by name. A missing folder is empty; a bucket must exist."""
    root = folder if folder.is_cloud and not folder.name else Url(folder.bucket, folder.name.rstrip("/") + "/")
    try:
        items = list(expand(context.storage, context.project, root, recursive=True))
    except NotFoundError:
        return {}
    return {item.name_in_folder: item for item in items if recursive or "/" not in item.name_in_folder}


def _differ(one: CopySource, other: CopySource) -> bool:
    return one.size != other.size or _checksum(one) != _checksum(other)


def _checksum(source: CopySource) -> str:
    if source.url.is_cloud:
        return str(source.meta.get("crc32c"))
    checksum = crc32c()
    with open(source.url.name, "rb") as file:
        while chunk := file.read(1 << 20):
            checksum.update(chunk)
    return encode_checksum(checksum)
