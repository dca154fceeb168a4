"""mirror: public objects of Cloud Storage that this server has itself."""

from __future__ import annotations

import click

from trainshed.cli.toolkit.lazy_group import Command
from trainshed.cli.toolkit.list_filters import select
from trainshed.cli.toolkit.options import confirm, format_option, listing_options, quiet_option, session
from trainshed.cli.toolkit.output import Column, local_time, say, show_list

_PATH = "/trainshed/v1/mirrors"
_COLUMNS = (
    Column("URI", "uri"),
    Column("SIZE", "size"),
    Column("BUILT_IN", "builtIn"),
    Column("UPDATED", "updateTime", local_time),
)


@click.command(cls=Command)
@click.argument("uri")
@click.argument("source")
def add(uri: str, source: str) -> None:
    """Serve the public object URI from here. Its bytes are those of SOURCE, an object of a bucket on this server.

    URI may be its URL at storage.googleapis.com. All projects, and programs without a token on this machine, can read
    it then. A mirror that is there is replaced.

    \b
    Example:
      trainshed buckets cp imdb.npz gs://my-bucket
      trainshed mirror add gs://tensorflow/tf-keras-datasets/imdb.npz gs://my-bucket/imdb.npz
    """
    added = session().client.call("POST", _PATH, body={"uri": uri, "source": source})
    say(f"Added mirror [{added['uri']}] of {added['size']:,} bytes.")


@click.command("list", cls=Command)
@listing_options
@format_option
def list_(filter: str | None, sort_by: str | None, limit: int | None, format: str | None) -> None:
    """List mirrors of public objects.

    \b
    Example:
      trainshed mirror list --format json
    """
    mirrors = session().client.call("GET", _PATH)["mirrors"]
    show_list(select(mirrors, filter=filter, sort_by=sort_by, limit=limit), format=format, columns=_COLUMNS)


@click.command(cls=Command)
@click.argument("uri")
@quiet_option
def remove(uri: str, quiet: bool) -> None:
    """Remove a mirror. The object that its bytes came from stays.

    \b
    Example:
      trainshed mirror remove gs://tensorflow/tf-keras-datasets/imdb.npz
    """
    confirm(f"The mirror [{uri}] will be removed.", quiet=quiet)
    session().client.call("POST", f"{_PATH}:remove", body={"uri": uri})
    say(f"Removed mirror [{uri}].")
