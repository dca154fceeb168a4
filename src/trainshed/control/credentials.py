"""What lets a replica's own code reach this server under Google's names: variables, a token, and files with it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from trainshed.engines.base import Launch

FOLDER = "credentials"  #: in the attempt's own
_LONGER_S = 86_400.0  #: that a token lives beyond the job's time limit, at most; the end of the job ends it anyway
_NEVER_PROXIED = ("localhost", "127.0.0.1", "::1")
_GOOGLE = "storage.googleapis.com"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How replicas on this machine get to the server."""

    url: str
    tls_url: str
    proxy_url: str
    bundle: Path  #: the authorities that they trust, the server's own among them
    bypass: str = ""  #: what the machine's own no_proxy says


class Issue(Protocol):
    def __call__(self, project: str, job: str, *, ttl_s: float) -> str: ...


class Credentials:
    """`issue` makes a token for a job, given its project, its name and how long it may live at most."""

    def __init__(self, reach: Reach, *, issue: Issue) -> None:
        self._reach = reach
        self._issue = issue

    def equip(self, launch: Launch) -> Launch:
        """The same launch with `gs://` in it. Writes the token into the attempt's folder; the launch has only paths.

        What a launch says already is kept.
        """
        folder = launch.folder / FOLDER
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        token = self._issue(launch.project, launch.job, ttl_s=launch.max_running_s + _LONGER_S)
        for name, text in files(self._reach, launch, token).items():
            _write(folder / name, text)
        return replace(launch, env={**environment(self._reach, launch), **launch.env})


def files(reach: Reach, launch: Launch, token: str) -> dict[str, str]:
    """The texts that hold the token, by file name: for Trainshed's command line, Google's libraries, and gsutil."""
    google = {"type": "authorized_user", "client_id": "trainshed", "client_secret": "none", "refresh_token": token}
    tls = urlsplit(reach.tls_url)
    boto: dict[str, dict[str, object]] = {
        "Credentials": {
            "gs_json_host": tls.hostname,
            "gs_json_port": tls.port,
            "gs_oauth2_refresh_token": token,
        },
        "Boto": {"ca_certificates_file": reach.bundle},
        "GSUtil": {
            "default_project_id": launch.project,
            "software_update_check_period": 0,
            "state_dir": launch.folder / FOLDER / "gsutil",
        },
        "OAuth2": {
            "client_id": "trainshed",
            "client_secret": "none",
            "token_cache": "in_memory",
            "provider_token_uri": f"{reach.tls_url}/token",
            "provider_authorization_uri": f"{reach.tls_url}/auth",
        },
    }
    return {"token": f"{token}\n", "google.json": json.dumps(google), "boto": _ini(boto)}


def _ini(sections: Mapping[str, Mapping[str, object]]) -> str:
    lines = []
    for name, values in sections.items():
        lines += [f"[{name}]", *(f"{key} = {value}" for key, value in values.items()), ""]
    return "\n".join(lines)


def environment(reach: Reach, launch: Launch) -> dict[str, str]:
    """The variables of every replica. None of them is secret."""
    folder = launch.folder / FOLDER
    bypass = ",".join(_bypass(launch, reach.bypass))
    fsspec = json.dumps({"endpoint_url": reach.url})  # gcsfs goes by no proxy variable
    return {
        "https_proxy": reach.proxy_url,
        "HTTPS_PROXY": reach.proxy_url,
        "no_proxy": bypass,
        "NO_PROXY": bypass,
        "CURL_CA_BUNDLE": str(reach.bundle),
        "REQUESTS_CA_BUNDLE": str(reach.bundle),
        "SSL_CERT_FILE": str(reach.bundle),
        "HTTPLIB2_CA_CERTS": str(reach.bundle),
        "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(reach.bundle),
        "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE": str(reach.bundle),
        "GOOGLE_APPLICATION_CREDENTIALS": str(folder / "google.json"),
        "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE": str(folder / "token"),
        "BOTO_CONFIG": str(folder / "boto"),
        "GOOGLE_CLOUD_PROJECT": launch.project,
        "CLOUDSDK_CORE_PROJECT": launch.project,
        "NO_GCE_CHECK": "true",  # nothing waits for a metadata server
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",  # or gcsfs asks for each bucket's type by gRPC first
        "FSSPEC_GS": fsspec,
        "FSSPEC_GCS": fsspec,
        "TRAINSHED_URL": reach.url,
        "TRAINSHED_HOME": str(folder),  # where the command line looks for its token
    }


def _bypass(launch: Launch, machines: str) -> Iterable[str]:
    """Whom replicas speak to without the proxy: themselves, each other, and whom the machine says, Google aside.

    gRPC goes by these variables too: TensorFlow's replicas would not find each other without the cluster's hosts.
    """
    entries = [entry.strip() for entry in machines.split(",")]
    kept = [entry for entry in entries if entry and not _GOOGLE.endswith(entry.lstrip("*."))]
    return dict.fromkeys((*_NEVER_PROXIED, *_hosts(launch), *kept))


def _hosts(launch: Launch) -> Iterable[str]:
    for replica in launch.replicas:
        cluster = json.loads(replica.env.get("TF_CONFIG", "{}")).get("cluster", {})
        for addresses in cluster.values():
            yield from (address.rpartition(":")[0] for address in addresses)


def _write(path: Path, text: str) -> None:
    fresh = path.with_name(f".{path.name}.new")
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    fresh.rename(path)
