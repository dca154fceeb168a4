"""buckets ls, du, stat: what is there, in the forms that gsutil prints."""

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
@click.option("-r", "-R", "recursive", is_flag=True, help="With folders in folders.")
@click.option("-d", "folders_only", is_flag=True, help="Show folders themselves, not what is in them.")
@click.option("-p", "--project", metavar="ID", help="The project whose buckets are listed.")
@format_option
def ls(urls: tuple[str, ...], project: str | None, format: str | None, **how: bool) -> None:
    """List buckets, and objects in them. * stays within a folder, ** does not.

    \b
    Example:
      trainshed buckets ls -l "gs://my-bucket/data/*.csv"
    """
    here = session(project)
    if not urls or urls == ("gs://",):
        found = list(here.storage.buckets(here.project))
        if format is not None:
            show_list(found, format=format, columns=(Column("NAME", "name"), Column("CREATED", "timeCreated")))
        else:
            click.echo("".join(f"gs://{bucket['name']}/\n" for bucket in found), nl=False)
        return
    if format is not None:
        objects = [
            item.meta for text in urls for item in expand(here.storage, here.project, Url.cloud(text), recursive=True)
        ]
        show_list(objects, format=format, columns=_COLUMNS)
        return
    listing = _Lister(here, **how)
    shown = [listing.show(url) for url in [Url.cloud(text) for text in urls]]
    listing.finish()
    if not all(shown):
        raise NotFoundError("One or more URLs matched no objects.")


class _Lister:
    """Prints matches as gsutil does: objects as they are, folders with a heading if there are several."""

    def __init__(self, here: CommandContext, *, long: bool, recursive: bool, folders_only: bool) -> None:
        self._here = here
        self._long = long
        self._recursive = recursive
        self._folders_only = folders_only
        self._count = 0
        self._bytes = 0
        self._blank = False  #: whether a blank line must come before the next heading

    def show(self, url: Url) -> bool:
        """Whether there was something to show."""
        assert url.bucket is not None
        matches = [match(self._here.storage, url, bucket=b) for b in self._buckets(url.bucket)]
        several = sum(len(found.objects) + len(found.folders) for found in matches) > 1
        for found in matches:
            self._show_match(found, headings=several or self._recursive)
        return any(found.objects or found.folders for found in matches)

    def _buckets(self, wanted: str) -> list[str]:
        return match_buckets(self._here.storage, self._here.project, wanted)

    def _show_match(self, found: Match, *, headings: bool) -> None:
        for item in found.objects:
            self._object(found.bucket, item)
        for folder in found.folders:
            if self._folders_only:
                self._folder(found.bucket, folder)
            else:
                self._contents(found.bucket, folder, heading=headings)

    def _contents(self, bucket: str, folder: str, *, heading: bool) -> None:
        listing = self._here.storage.list(bucket, prefix=folder, delimiter="/")
        if heading and folder:
            click.echo(("\n" if self._blank else "") + f"gs://{bucket}/{folder}:")
        for item in listing.objects:
            self._object(bucket, item)
        self._blank = bool(folder)  # the objects of a bucket itself stand close to its first folder
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
def du(urls: tuple[str, ...], project: str | None, **how: bool) -> None:
    """Show how much space objects take: each object, each folder, and the whole.

    \b
    Example:
      trainshed buckets du -s -h gs://my-bucket
    """
    here = session(project)
    given = urls or tuple(f"gs://{bucket['name']}" for bucket in here.storage.buckets(here.project))
    whole = 0
    for text in given:
        for size, name, is_top in _usage(here, Url.cloud(text)):
            whole += size if is_top else 0
            if is_top or not how["sum_only"]:
                click.echo(f"{human(size) if how['readable'] else size:<11}  {name}")
    if how["grand_total"]:
        click.echo(f"{human(whole) if how['readable'] else whole:<11}  total")


def _usage(here: CommandContext, url: Url) -> Iterator[tuple[int, str, bool]]:
    """(bytes, name, whether it was asked for) of each object and folder, the innermost first."""
    assert url.bucket is not None
    for bucket in match_buckets(here.storage, here.project, url.bucket):
        found = match(here.storage, url, bucket=bucket)
        yield from ((int(item["size"]), f"gs://{bucket}/{item['name']}", True) for item in found.objects)
        for folder in found.folders:
            yield from _folder_usage(here, bucket, folder)


def _folder_usage(here: CommandContext, bucket: str, folder: str) -> Iterator[tuple[int, str, bool]]:
    """The objects of a folder, then each folder in it with its own line last, then the folder itself."""
    rows = [
        (item["name"][len(folder) :], int(item["size"])) for item in here.storage.list(bucket, prefix=folder).objects
    ]
    lines: list[tuple[int, str, bool]] = []
    size = _add_usage(f"gs://{bucket}/{folder}", rows, lines)
    yield from lines
    yield size, f"gs://{bucket}/{folder}" if folder else f"gs://{bucket}", True


def _add_usage(where: str, rows: list[tuple[str, int]], lines: list[tuple[int, str, bool]]) -> int:
    lines += [(size, where + name, False) for name, size in rows if "/" not in name]
    below: dict[str, list[tuple[str, int]]] = {}
    for name, size in rows:
        top, slash, rest = name.partition("/")
        if slash:
            below.setdefault(f"{top}/", []).append((rest, size))
    for folder, inside in below.items():
        lines.append((_add_usage(where + folder, inside, lines), where + folder, False))
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
    here = session(project)
    for text in urls:
        objects = [item.meta for item in expand(here.storage, here.project, Url.cloud(text), recursive=False)]
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
