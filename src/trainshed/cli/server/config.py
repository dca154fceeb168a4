"""config list, get, set, unset: config.toml in the state folder."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import click

from trainshed.cli.toolkit.lazy_group import Command
from trainshed.cli.toolkit.options import format_option
from trainshed.cli.toolkit.output import say, show_one
from trainshed.config import DEFAULT_PROJECT, ClientSettings, Home, Settings, environment
from trainshed.domain import names
from trainshed.domain.capacity.machine_types import MachineTypes
from trainshed.errors import InvalidArgumentError
from trainshed.node.files import write_file

#: section on the command line (gcloud's or Trainshed's) -> table of config.toml
_TABLES = {"core": "client", "client": "client", "server": "server"}
_NESTED = ("machines", "buckets")  #: tables of tables
_SERVER_SETTINGS = tuple(field.name for field in fields(Settings))


def _property(text: str) -> tuple[str, str]:
    """Parse `project`, `core/project`, `port` or `server/port` to (table, name)."""
    section, _, name = text.rpartition("/")
    if not section:
        section = "core" if name == "project" else "server"
    known = {"client": ("project",), "server": _SERVER_SETTINGS}.get(_TABLES.get(section, ""), ())
    if name not in known:
        raise InvalidArgumentError(
            f"There is no property [{text}]. There are: project, "
            f"{', '.join(f'server/{name}' for name in _SERVER_SETTINGS)}."
        )
    return _TABLES[section], name


def _check(table: dict[str, Any]) -> None:
    Settings.read({}, table.get("server"))
    MachineTypes.read(table.get("machines", {}))
    if project := table.get("client", {}).get("project"):
        names.project_id(str(project))


def _write(home: Home, tables: dict[str, Any]) -> None:
    """Replace config.toml. Atomic: a reader sees the old file or the new one."""
    lines: list[str] = []
    plain = {name: values for name, values in tables.items() if name not in _NESTED}
    nested = {f"{name}.{_key(each)}": values for name in _NESTED for each, values in tables.get(name, {}).items()}
    for table, values in (plain | nested).items():
        if values:
            lines += [f"[{table}]", *(f"{name} = {_toml(value)}" for name, value in values.items()), ""]
    home.path.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_file(home.config, "\n".join(lines).encode(), durable=True)


def _key(name: str) -> str:
    """Quote one part of a table's dotted name, if needed."""
    return name if name.isascii() and name.replace("-", "").replace("_", "").isalnum() else _toml(name)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_toml(name)} = {_toml(each)}' for name, each in value.items())}}}"
    escaped = "".join(f"\\u{ord(c):04x}" if ord(c) < 32 or ord(c) == 127 else c for c in _escape(str(value)))
    return f'"{escaped}"'


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


@click.command("set", cls=Command)
@click.argument("property")
@click.argument("value")
def set_(property: str, value: str) -> None:
    """Set a property in config.toml. The server reads its settings when it starts.

    \b
    Example:
      trainshed config set project my-project
      trainshed config set server/port 9000
    """
    home = Home.find(environment())
    table, name = _property(property)
    tables = home.file_settings()
    tables.setdefault(table, {})[name] = value
    _check(tables)
    if table == "server":
        tables[table][name] = getattr(Settings.read({}, tables[table]), name)
    _write(home, tables)
    say(f"Updated property [{_section_of(table)}/{name}].")


@click.command(cls=Command)
@click.argument("property")
def unset(property: str) -> None:
    """Remove a property from config.toml, so that its default counts.

    \b
    Example:
      trainshed config unset server/port
    """
    home = Home.find(environment())
    table, name = _property(property)
    tables = home.file_settings()
    if tables.get(table, {}).pop(name, None) is not None:
        _write(home, tables)
    say(f"Unset property [{_section_of(table)}/{name}].")


@click.command(cls=Command)
@click.argument("property")
def get(property: str) -> None:
    """Print one property as it is in force: environment, then config.toml, then the default.

    \b
    Example:
      trainshed config get project
    """
    table, name = _property(property)
    value = _effective()[_section_of(table)].get(name)
    click.echo(_text(getattr(Settings(), name) if value is None and table == "server" else value))


@click.command("list", cls=Command)
@click.argument("property", required=False)
@format_option
def list_(property: str | None, format: str | None) -> None:
    """List the project and the server settings. Those at their defaults are left out.

    \b
    Example:
      trainshed config list project --format "value(core.project)"
    """
    tables = _effective()
    if property is not None:
        table, name = _property(property)
        values = tables.get(_section_of(table), {})
        tables = {_section_of(table): {name: values[name]} if name in values else {}}
    if format is not None:
        show_one(tables, format=format)
        return
    for section, values in tables.items():
        if values:
            click.echo("\n".join([f"[{section}]", *(f"{name} = {_text(value)}" for name, value in values.items())]))


def _effective() -> dict[str, dict[str, Any]]:
    env = environment()
    client = ClientSettings.read(env)
    settings, defaults = Settings.read(env, client.home.file_settings().get("server")), Settings()
    changed = {
        name: getattr(settings, name) for name in _SERVER_SETTINGS if getattr(settings, name) != getattr(defaults, name)
    }
    return {"core": {"project": client.project or DEFAULT_PROJECT}, "server": changed}


def _section_of(table: str) -> str:
    return "core" if table == "client" else table


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
