"""Settings, and the layout of the state folder. The only reader of the environment outside `node`.

`TRAINSHED_SERVER_PORT=9000` sets `port` of the server. The command line reads `TRAINSHED_HOME`, `TRAINSHED_PROJECT`,
`TRAINSHED_URL` and `TRAINSHED_TOKEN`. Both also read `config.toml` in the state folder; the environment has precedence.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from trainshed.domain.image_registries import DEFAULT_REGISTRIES, REGISTRIES_DESCRIPTION, ImageRegistries
from trainshed.domain.setting_values import (
    FIND_LINKS_DESCRIPTION,
    GATEWAYS_DESCRIPTION,
    NETWORK_DESCRIPTION,
    check_values,
    convert,
)
from trainshed.errors import CannotProceedError

PREFIX = "TRAINSHED_SERVER_"


def environment() -> Mapping[str, str]:
    """The environment of this process, to pass to `Settings.read` and `ClientSettings.read`."""
    import os

    return os.environ


def _setting(default: Any, description: str) -> Any:
    return field(default=default, metadata={"description": description})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of the server. Read once; unknown names are rejected."""

    host: str = _setting("127.0.0.1", "Address to listen on.")
    port: int = _setting(8470, "Port for HTTP. 0 picks a free one.")
    tls_port: int = _setting(8471, "Port for HTTPS with the server's own certificate authority. 0 picks a free one.")
    allowed_hosts: str = _setting("", "Host names, separated by commas, for clients besides loopback and `host`.")
    max_connections: int = _setting(
        4000,
        "Most open connections, at most half of the open files that the system allows. At this number, a new "
        "one takes the place of the one that is idle the longest. The tunnels of the proxy for trainers are counted "
        "apart, at most an eighth of the open files.",
    )
    max_connections_per_address: int = _setting(500, "The same for an address not of loopback or `reverse_proxies`.")
    unread_limit_mb: int = _setting(
        256,
        "Most memory for responses that their clients do not read. Above it, the connections are closed whose clients "
        "have read nothing for the longest time.",
    )
    reverse_proxies: str = _setting(
        "",
        "Addresses and networks, separated by commas, of reverse proxies in front of the server, such as `10.0.0.7, "
        "10.1.0.0/16`: many clients share such an address.",
    )
    gateways: int = _setting(1, GATEWAYS_DESCRIPTION)
    authentication: bool = _setting(True, "Require a token. It can be turned off only on a loopback address.")
    database: str = _setting(
        "", "A `postgresql://` URL; needs the extra `postgresql`. Empty: SQLite in the state folder."
    )
    backup_interval_s: float = _setting(3600.0, "Seconds between copies of a SQLite database, if it changed.")
    backup_count: int = _setting(24, "Copies of the database that are kept; older ones are removed.")
    audit_retention_days: int = _setting(400, "Days after which entries of the audit record are deleted.")
    audit_max_entries: int = _setting(1_000_000, "Most entries of the audit record; the oldest are deleted.")
    disabled_users_jobs: str = _setting(
        "keep", "What happens to the jobs of a user who is disabled: `keep`, they go on; `cancel`, they are cancelled."
    )
    slots: int = _setting(0, "Replicas that run concurrently on this machine. 0: four for each core.")
    single_replica_share: float = _setting(
        0.125,
        "The share of the slots, or of a cluster's cores, that larger gangs leave to jobs of one replica. 0: none.",
    )
    max_passed_over_s: float = _setting(
        600.0, "Seconds for which others may start before a gang that does not fit. Then nothing overtakes it."
    )
    usage_half_life_s: float = _setting(
        3600.0,
        "Seconds after which the slots that a project or a user had in use count half in the order of the queue.",
    )
    poll_s: float = _setting(0.1, "Seconds between two checks of running jobs.")
    grace_s: float = _setting(10.0, "Seconds that a cancelled replica has between SIGTERM and SIGKILL.")
    hang_timeout_s: float = _setting(
        600.0, "Seconds without a step, output or CPU time until a replica hangs; 10 if a signal stopped it. 0: never."
    )
    hang_restart: bool = _setting(False, "Kill a replica that hangs. It or its gang restarts, as after any loss.")
    warm_start: str = _setting(
        "auto",
        "`auto`: a warm process for each runtime in use has its framework imported, and replicas are forked from it. "
        "`off`: every replica imports it.",
    )
    runtime_find_links: str = _setting("", FIND_LINKS_DESCRIPTION)
    warm_idle_s: float = _setting(
        1800.0,
        "Seconds without a start after which a warm process is released, with up to 700 MB. The next start is a "
        "[cold one](training.md#warm-start). 0: it stays.",
    )
    sandbox: str = _setting(
        "auto",
        "The least level of the [sandbox](security.md#the-sandbox) around user code: `auto`, the strongest that the "
        "machine allows; `full` or `landlock`, and the server does not start where there is less; `none`, no sandbox.",
    )
    network: str = _setting("all", NETWORK_DESCRIPTION)
    package_hosts: str = _setting(
        "",
        "Hosts, separated by commas, that package builds reach besides [the package index](security.md#the-network).",
    )
    sandbox_paths: str = _setting("", "Paths of data on this machine, separated by commas, that user code can read.")
    memory_limit_gb: float = _setting(0.0, "Most memory of a replica, host or build, in GB. 0: 3/4 of the machine's.")
    process_limit: int = _setting(4096, "Most processes and threads of one of these together.")
    open_file_limit: int = _setting(65_536, "Most open files of each process of these.")
    file_size_limit_gb: float = _setting(256.0, "Largest file that they can write, in GB. 0: no limit.")
    disk_limit_gb: float = _setting(0.0, "Most in all their files together, in GB. 0: half of what is free then.")
    replica_cpu_weight: int = _setting(50, "CPU weight of a replica or build, from 1 to 100; a host has 100.")
    container_tool: str = _setting(
        "auto",
        "The tool that runs containers: `podman`, `docker`, or `auto`, the one that has the image, else Podman if it "
        "is installed.",
    )
    image_registries: str = _setting(DEFAULT_REGISTRIES, REGISTRIES_DESCRIPTION)
    container_read_only: bool = _setting(
        False, "Containers can't change the files of their image; `/tmp`, `/var/tmp` and `/run` are in memory then."
    )
    log_limit_mb: int = _setting(256, "Largest log of one replica, in MB. Later lines are counted and dropped.")
    body_limit_mb: int = _setting(10, "Largest JSON request body, in MB. Object uploads have no limit.")
    predict_timeout_s: float = _setting(
        60.0, "Timeout of a prediction in seconds, including the activation of a version that is asleep."
    )
    load_timeout_s: float = _setting(300.0, "Timeout in seconds for a host to load its model.")
    sleep_after_s: float = _setting(
        900.0, "Seconds without a request after which a version with `autoScaling.minNodes` 0 is scaled to zero."
    )
    container_network: str = _setting(
        "bridge",
        "The network of containers that serve versions: `bridge`, one of their own, with their port on loopback; "
        "`host`, the machine's, where `bridge` does not work. With `host`, a container must listen on the port that "
        "AIP_HTTP_PORT names, and everyone who can connect to the machine can connect to it.",
    )
    gs_in_trainers: str = _setting(
        "auto",
        "What `gs://` means in trainer code: `trainshed`, this server's buckets; `google`, the real Cloud Storage, "
        "with their network unchanged; `auto`, the real one if the server finds credentials of Google Cloud "
        "(GOOGLE_APPLICATION_CREDENTIALS, or those of `gcloud auth application-default login`), else this server's.",
    )
    public_data: bool = _setting(True, "Whether reads of other buckets ask [Google's storage](storage.md#public-data).")
    job_environment: str = _setting(
        "",
        "Names of variables of the server's environment, separated by commas, that user code on this machine gets "
        "besides [those on the list](security.md#environment), such as `GOOGLE_APPLICATION_CREDENTIALS` for the real "
        "Cloud Storage.",
    )
    node_host: str = _setting(
        "",
        "Host name or address at which the nodes of a cluster reach this server. Empty: `host`, or, if that is "
        "every address, the one from which this machine connects to the cluster.",
    )
    node_buckets: str = _setting(
        "",
        "A folder on a shared file system at which the nodes of a cluster have `buckets` of the state folder: `gs://` "
        "arguments of jobs on them become paths below it. Empty: arguments stay unchanged.",
    )
    engine: str = _setting(
        "local",
        "The default engine of jobs and versions: `local`, this machine; `ray`, the Ray cluster at `ray_address`. A "
        "job or a version names another with `--engine`, or with the label `trainshed-engine`.",
    )
    ray_address: str = _setting(
        "",
        "The address of a Ray cluster: HOST:PORT as `ray start` prints it, or `ray://HOST:PORT` for Ray Client. Empty: "
        "no cluster.",
    )
    ray_version: str = _setting("2.58.0", "The version of Ray that the cluster runs.")
    ray_python: str = _setting("3.11", "The version of Python that the cluster runs, major and minor.")
    ray_placement: str = _setting(
        "pack", "Placement of a gang on a Ray cluster: `pack`, on few nodes; `spread`, on many."
    )
    ray_cpu_share: float = _setting(1.0, "Share of a machine type's cores that a replica requests from Ray.")
    ray_memory_share: float = _setting(1.0, "Share of a machine type's memory that a replica requests from Ray.")

    def __post_init__(self) -> None:
        check_values({each.name: getattr(self, each.name) for each in fields(self)})
        from trainshed.connections import check_exempt_addresses

        check_exempt_addresses(self.reverse_proxies)
        ImageRegistries.parse(self.image_registries)

    @property
    def ray_host(self) -> str:
        """The host in `ray_address`; empty if there is none."""
        return self.ray_address.removeprefix("ray://").rpartition(":")[0].strip("[]")

    @property
    def visible_paths(self) -> tuple[Path, ...]:
        """The paths in `sandbox_paths`."""
        return tuple(Path(path.strip()) for path in self.sandbox_paths.split(",") if path.strip())

    @property
    def passed_variables(self) -> frozenset[str]:
        """The names in `job_environment`."""
        return frozenset(name.strip() for name in self.job_environment.split(",") if name.strip())

    def serves_gs(self, *, has_google_credentials: bool) -> bool:
        """Whether `gs://` in the code of trainers means this server's buckets."""
        return self.gs_in_trainers == "trainshed" or (self.gs_in_trainers == "auto" and not has_google_credentials)

    @classmethod
    def read(cls, env: Mapping[str, str], file: Mapping[str, Any] | None = None) -> Self:
        """The settings of `env`, then of `file`. Raises `CannotProceedError` for an unknown name or a bad value."""
        known = {f.name: f.type for f in fields(cls)}
        raw = {f"{name} in config.toml": (name, value) for name, value in (file or {}).items()}
        raw |= {key: (key.removeprefix(PREFIX).lower(), env[key]) for key in env if key.startswith(PREFIX)}
        values: dict[str, Any] = {}
        for source, (name, value) in raw.items():
            if name not in known:
                raise CannotProceedError(f"Unknown setting {source}. The settings are: {', '.join(sorted(known))}.")
            values[name] = convert(source, value, str(known[name]))
        return cls(**values)

    def sources(self, env: Mapping[str, str], file: Mapping[str, Any] | None = None) -> dict[str, str]:
        """The source of each value: environment, file, default or command line."""
        sources = {}
        for setting in fields(self):
            key, source, text = f"{PREFIX}{setting.name.upper()}", "default", setting.default
            if key in env:
                source, text = "environment", env[key]
            elif setting.name in (file or {}):
                source, text = "file", (file or {})[setting.name]
            same = convert(key, text, str(setting.type)) == getattr(self, setting.name)
            sources[setting.name] = source if same else "command line"
        return sources


@dataclass(frozen=True, slots=True)
class Home:
    """The state folder and the paths in it."""

    path: Path

    @classmethod
    def find(cls, env: Mapping[str, str]) -> Self:
        return cls(Path(env.get("TRAINSHED_HOME") or Path.home() / ".trainshed").expanduser().absolute())

    def create(self, *, setting: str = "TRAINSHED_HOME") -> None:
        """Create the folder, mode 0700. `setting` is what chooses another one, for the error. Idempotent.

        Raises `CannotProceedError` if it can't be created or written to, or lacks extended attributes.
        """
        import os

        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path.chmod(0o700)
            probe = self.path / f".probe-{os.getpid()}"
            probe.touch(mode=0o600)
        except OSError as exc:
            raise CannotProceedError(
                f"The state folder {self.path} can't be written to: {exc.strerror}. Choose another one with {setting}."
            ) from exc
        try:
            os.setxattr(probe, "user.trainshed", b"1")
        except OSError as exc:
            raise CannotProceedError(
                f"The file system of {self.path} keeps no extended attributes ({exc.strerror}), and objects need them. "
                f"Choose a folder on ext4, xfs, btrfs or tmpfs with {setting}."
            ) from exc
        finally:
            probe.unlink(missing_ok=True)

    def file_settings(self) -> dict[str, Any]:
        """The tables of `config.toml`. Raises `CannotProceedError` if it is not TOML or has unknown tables."""
        path = self.path / "config.toml"
        try:
            tables = tomllib.loads(path.read_text())
        except (FileNotFoundError, NotADirectoryError):
            return {}
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as exc:
            raise CannotProceedError(f"{path} can't be read: {exc}.") from exc
        for name, table in tables.items():
            if name not in ("server", "client", "oidc", "machines", "buckets") or not isinstance(table, dict):
                what = f"a table [{name}]" if isinstance(table, dict) else f"{name!r} outside of a table"
                raise CannotProceedError(
                    f"{path} has {what}; what it can hold is the tables [server], [client], [oidc], "
                    f"[machines.NAME] and [buckets.NAME]."
                )
        return tables

    @property
    def config(self) -> Path:
        return self.path / "config.toml"

    @property
    def database(self) -> Path:
        return self.path / "state.db"

    @property
    def backups(self) -> Path:
        """`backups/state-TIME.db`: copies of the database that the server makes on a timer."""
        return self.path / "backups"

    @property
    def lock(self) -> Path:
        return self.path / "server.lock"

    @property
    def server(self) -> Path:
        """JSON about the running server: url, tls_url, pid, home, version."""
        return self.path / "server.json"

    @property
    def server_log(self) -> Path:
        return self.path / "server.log"

    @property
    def token(self) -> Path:
        """The owner's token, mode 0600."""
        return self.path / "token"

    @property
    def token_for(self) -> Path:
        """The URL of the server that `token` is for, if that is remote, as in a job on a node."""
        return self.path / "token-for"

    @property
    def proxy(self) -> Path:
        """The port of the proxy for trainers. The next server uses the same one: running jobs know it."""
        return self.path / "proxy-port"

    @property
    def secret_key(self) -> Path:
        """The keys of secrets, mode 0600."""
        return self.path / "secret-key"

    @property
    def certificates(self) -> Path:
        return self.path / "certificates"

    @property
    def buckets(self) -> Path:
        """`buckets/BUCKET/OBJECT`: plain files."""
        return self.path / "buckets"

    @property
    def uploads(self) -> Path:
        """Incomplete uploads, on the same file system as `buckets`."""
        return self.path / "uploads"

    @property
    def mirrors(self) -> Path:
        """`mirrors/BUCKET/OBJECT`: copies of event files of cloud buckets."""
        return self.path / "mirrors"

    @property
    def jobs(self) -> Path:
        """`jobs/PROJECT/JOB/ATTEMPT/`: files of the attempt's supervisor."""
        return self.path / "jobs"

    @property
    def runtimes(self) -> Path:
        return self.path / "runtimes"

    @property
    def packages(self) -> Path:
        """`packages/PROJECT/DIGEST/`: installed packages of users, once per set and runtime."""
        return self.path / "packages"

    @property
    def node(self) -> Path:
        return self.path / "node"

    @property
    def bridge_folder(self) -> Path:
        """The socket and the arguments of the Ray bridge."""
        return self.path / "bridge"

    @property
    def models(self) -> Path:
        """`models/PROJECT/DIGEST/`: snapshots of versions, by content."""
        return self.path / "models"

    @property
    def hosts(self) -> Path:
        """`hosts/PROJECT/MODEL/VERSION/`: specs and output of the hosts of a version."""
        return self.path / "hosts"

    @property
    def notebook(self) -> Path:
        """Files of `trainshed notebook`: its lock, its token, Jupyter's own files."""
        return self.path / "notebook"

    @property
    def notebooks(self) -> Path:
        """The default folder of the user's notebooks."""
        return self.path / "notebooks"

    @property
    def shell(self) -> Path:
        """Files of `trainshed shell`: its shims and its token."""
        return self.path / "shell"

    @property
    def tensorboards(self) -> Path:
        """Output of the server's TensorBoards."""
        return self.path / "tensorboards"

    @property
    def warm(self) -> Path:
        """`warm/KEY/`: the socket and the arguments of a warm process."""
        return self.path / "warm"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """The server, project and token of the command line."""

    home: Home
    project: str
    url: str | None  #: None: the server whose state folder this is
    token: str | None  #: None: the owner's token in the state folder

    @classmethod
    def read(cls, env: Mapping[str, str]) -> Self:
        home = Home.find(env)
        table = home.file_settings().get("client", {})
        if unknown := set(table) - {"project"}:
            raise CannotProceedError(
                f"{home.config} sets {', '.join(sorted(unknown))} under [client]; only `project` is known there."
            )
        return cls(
            home=home,
            project=default_project(home, env),
            url=env.get("TRAINSHED_URL") or None,
            token=env.get("TRAINSHED_TOKEN") or None,
        )


DEFAULT_PROJECT = "trainshed"


def default_project(home: Home, env: Mapping[str, str]) -> str:
    """The project of commands that name none."""
    configured = home.file_settings().get("client", {}).get("project")
    return str(env.get("TRAINSHED_PROJECT") or configured or DEFAULT_PROJECT)
