"""buckets ls, du, stat, in the output formats of gsutil."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import click

from trainshed.cli.toolkit.lazy_group import Command
from trainshed.cli.toolkit.options import CommandContext, format_option, project_option, session
from trainshed.cli.toolkit.output import Column, show_list
from trainshed.cli.toolkit.transfers import human
from trainshed.client.urls import Match, Url, expand, match, match_buckets
from trainshed.domain.times import parse_rfc3339
from trainshed.errors import NotFoundError

_COLUMNS = (Column("NAME", "name"), Column("SIZE", "size"), Column("UPDATED", "updated"))


@click.command(cls=Command)
@click.argument("urls", nargs=-1, metavar="[gs://BUCKET/NAME...]")
@click.option("-l", "long", is_flag=True, help="With sizes and times.")
@click.option("-r", "-R", "recursive", is_flag=True, help="Recursively.")
@click.option("-d", "folders_only", is_flag=True, help="Show folders themselves, not what is in them.")
@click.option("-p", "--project", metavar="ID", help="The project whose buckets are listed.")
@format_option
def ls(urls: tuple[str, ...], project: str | None, format: str | None, **flags: bool) -> None:
    """List buckets, and objects in them. * stays within a folder, ** does not.

    \b
    Example:
      trainshed buckets ls -l "gs://my-bucket/data/*.csv"
    """
    context = session(project)
    if not urls or urls == ("gs://",):
        buckets = list(context.storage.buckets(context.project))
        if format is not None:
            show_list(buckets, format=format, columns=(Column("NAME", "name"), Column("CREATED", "timeCreated")))
        else:
            click.echo("".join(f"gs://{bucket['name']}/\n" for bucket in buckets), nl=False)
        return
    if format is not None:
        objects = [
            item.meta
            for text in urls
            for item in expand(context.storage, context.project, Url.cloud(text), recursive=True)
        ]
        show_list(objects, format=format, columns=_COLUMNS)
        return
    listing = _Lister(context, **flags)
    results = [listing.show(url) for url in [Url.cloud(text) for text in urls]]
    listing.finish()
    if not all(results):
        raise NotFoundError("One or more URLs matched no objects.")


class _Lister:
    """Prints matches as gsutil does: objects as they are, folders with a heading if there are several."""

    def __init__(self, context: CommandContext, *, long: bool, recursive: bool, folders_only: bool) -> None:
        self._context = context
        self._long = long
        self._recursive = recursive
        self._folders_only = folders_only
        self._count = 0
        self._bytes = 0
        self._blank = False  #: whether a blank line comes before the next heading

    def show(self, url: Url) -> bool:
        """Print the matches of a URI. Returns whether there were any."""
        assert url.bucket is not None
        matches = [match(self._context.storage, url, bucket=b) for b in self._buckets(url.bucket)]
        several = sum(len(match_.objects) + len(match_.folders) for match_ in matches) > 1
        for match_ in matches:
            self._show_match(match_, headings=several or self._recursive)
        return any(match_.objects or match_.folders for match_ in matches)

    def _buckets(self, name: str) -> list[str]:
        return match_buckets(self._context.storage, self._context.project, name)

    def _show_match(self, match_: Match, *, headings: bool) -> None:
        for item in match_.objects:
            self._object(match_.bucket, item)
        for folder in match_.folders:
            if self._folders_only:
                self._folder(match_.bucket, folder)
            else:
                self._contents(match_.bucket, folder, heading=headings)

    def _contents(self, bucket: str, folder: str, *, heading: bool) -> None:
        listing = self._context.storage.list(bucket, prefix=folder, delimiter="/")
        if heading and folder:
            click.echo(("\n" if self._blank else "") + f"gs://{bucket}/{folder}:")
        for item in listing.objects:
            self._object(bucket, item)
        self._blank = bool(folder)  # no blank line between the objects of a bucket and its first folder
        for below in listing.prefixes:
            if self._recursive:
                self._contents(bucket, below, heading=True)
            else:
                self._folder(bucket, below)

    def _object(self, bucket: str, item: dict[str, Any]) -> None:
        name = f"gs://{bucket}/{item['name']}"
        self._count += 1
        self._bytes += int(item["size"])
        self._blank = True
        if self._long:
            name = f"{item['size']:>10}  {_seconds(item['updated'])}  {name}"
        click.echo(name)

    def _folder(self, bucket: str, folder: str) -> None:
        click.echo(f"{' ' * 33 if self._long else ''}gs://{bucket}/{folder}")

    def finish(self) -> None:
        if self._long:
            click.echo(f"TOTAL: {self._count} objects, {self._bytes} bytes ({human(self._bytes)})")


def _seconds(time: str) -> str:
    return datetime.fromtimestamp(parse_rfc3339(time) // 1_000_000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@click.command(cls=Command)
@click.argument("urls", nargs=-1, metavar="[gs://BUCKET/NAME...]")
@click.option("-s", "sum_only", is_flag=True, help="One number for each name given.")
@click.option("-h", "readable", is_flag=True, help="Sizes such as 1.5 KiB.")
@click.option("-c", "grand_total", is_flag=True, help="And one number for all of them.")
@project_option
def du(urls: tuple[str, ...], project: str | None, **flags: bool) -> None:
    """Show how much space objects take: each object, each folder, and the whole.

    \b
    Example:
      trainshed buckets du -s -h gs://my-bucket
    """
    context = session(project)
    uris = urls or tuple(f"gs://{bucket['name']}" for bucket in context.storage.buckets(context.project))
    total = 0
    for text in uris:
        for size, name, is_top in _usage(context, Url.cloud(text)):
            total += size if is_top else 0
            if is_top or not flags["sum_only"]:
                click.echo(f"{human(size) if flags['readable'] else size:<11}  {name}")
    if flags["grand_total"]:
        click.echo(f"{human(total) if flags['readable'] else total:<11}  total")


def _usage(context: CommandContext, url: Url) -> Iterator[tuple[int, str, bool]]:
    """Yield (bytes, name, whether it was requested) of each object and folder, the innermost first."""
    assert url.bucket is not None
    for bucket in match_buckets(context.storage, context.project, url.bucket):
        match_ = match(context.storage, url, bucket=bucket)
        yield from ((int(item["size"]), f"gs://{bucket}/{item['name']}", True) for item in match_.objects)
        for folder in match_.folders:
            yield from _folder_usage(context, bucket, folder)


def _folder_usage(context: CommandContext, bucket: str, folder: str) -> Iterator[tuple[int, str, bool]]:
    """Yield the objects of a folder, then each folder in it with its own line last, then the folder itself."""
    rows = [
        (item["name"][len(folder) :], int(item["size"])) for item in context.storage.list(bucket, prefix=folder).objects
    ]
    lines: list[tuple[int, str, bool]] = []
    size = _add_usage(f"gs://{bucket}/{folder}", rows, lines)
    yield from lines
    yield size, f"gs://{bucket}/{folder}" if folder else f"gs://{bucket}", True


def _add_usage(prefix: str, rows: list[tuple[str, int]], lines: list[tuple[int, str, bool]]) -> int:
    lines += [(size, prefix + name, False) for name, size in rows if "/" not in name]
    below: dict[str, list[tuple[str, int]]] = {}
    for name, size in rows:
        top, slash, rest = name.partition("/")
        if slash:
            below.setdefault(f"{top}/", []).append((rest, size))
    for folder, contents in below.items():
        lines.append((_add_usage(prefix + folder, contents, lines), prefix + folder, False))
    return sum(size for _, size in rows)


@click.command(cls=Command)
@click.argument("urls", nargs=-1, required=True, metavar="gs://BUCKET/NAME...")
@project_option
@format_option
def stat(urls: tuple[str, ...], project: str | None, format: str | None) -> None:
    """Show what is known about objects.

    \b
    Example:
      trainshed buckets stat gs://my-bucket/data/train.csv
    """
    context = session(project)
    for text in urls:
        objects = [item.meta for item in expand(context.storage, context.project, Url.cloud(text), recursive=False)]
        if format is not None:
            show_list(objects, format=format, columns=_COLUMNS)
            continue
        for item in objects:
            click.echo(f"gs://{item['bucket']}/{item['name']}:\n" + "\n".join(_facts(item)))


def _facts(item: dict[str, Any]) -> Iterator[str]:
    facts = {
        "Creation time": _http_date(item["timeCreated"]),
        "Update time": _http_date(item["updated"]),
        "Storage class": item.get("storageClass"),
        "Content-Encoding": item.get("contentEncoding"),
        "Content-Length": item["size"],
        "Content-Type": item.get("contentType"),
        "Metadata": "" if item.get("metadata") else None,
        **{f"    {key}": value for key, value in item.get("metadata", {}).items()},
        "Hash (crc32c)": item.get("crc32c"),
        "Hash (md5)": item.get("md5Hash"),
        "ETag": item.get("etag"),
        "Generation": item.get("generation"),
        "Metageneration": item.get("metageneration"),
    }
    for name, value in facts.items():
        if value is not None:
            yield f"    {name + ':':<24}{value}".rstrip()


def _http_date(time: str) -> str:
    return datetime.fromtimestamp(parse_rfc3339(time) // 1_000_000, UTC).strftime("%a, %d %b %Y %H:%M:%S GMT")
