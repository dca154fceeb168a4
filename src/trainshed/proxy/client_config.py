"""Configuration of Google's clients on this machine for this server: environment variables, and files with a token."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from trainshed.node.files import atomic_file

_NEVER_PROXIED = ("localhost", "127.0.0.1", "::1")
_GOOGLE_HOST = "storage.googleapis.com"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEndpoints:
    """The endpoints of the server for programs on this machine."""

    url: str
    tls_url: str
    proxy_url: str
    bundle: Path  #: the CA certificates that programs trust, including the server's own
    bypass: str = ""  #: the machine's own no_proxy


def config_files(
    endpoints: ServerEndpoints, *, project: str, folder: Path, token: str, state: Path | None = None
) -> dict[str, str]:
    """Return the files that hold the token, by name: for Trainshed's CLI, Google's libraries and gsutil.

    `folder` is the path of the files for their readers. gsutil keeps its state there too, unless `state` names another
    folder.
    """
    google = {"type": "authorized_user", "client_id": "trainshed", "client_secret": "none", "refresh_token": token}
    tls = urlsplit(endpoints.tls_url)
    boto: dict[str, dict[str, object]] = {
        "Credentials": {
            "gs_json_host": tls.hostname,
            "gs_json_port": tls.port,
            "gs_oauth2_refresh_token": token,
        },
        "Boto": {"ca_certificates_file": endpoints.bundle},
        "GSUtil": {
            "default_project_id": project,
            "software_update_check_period": 0,
            "state_dir": state or folder / "gsutil",
        },
        "OAuth2": {
            "client_id": "trainshed",
            "client_secret": "none",
            "token_cache": "in_memory",
            "provider_token_uri": f"{endpoints.tls_url}/token",
            "provider_authorization_uri": f"{endpoints.tls_url}/auth",
        },
    }
    return {"token": f"{token}\n", "google.json": json.dumps(google), "boto": _ini(boto)}


def _ini(sections: Mapping[str, Mapping[str, object]]) -> str:
    lines = []
    for name, values in sections.items():
        lines += [f"[{name}]", *(f"{key} = {value}" for key, value in values.items()), ""]
    return "\n".join(lines)


def client_environment(
    endpoints: ServerEndpoints, *, project: str, folder: Path, hosts: Iterable[str] = ()
) -> dict[str, str]:
    """Return the variables that point clients to the files in `folder`. None is secret. `hosts` bypass the proxy."""
    bypass = ",".join(_bypass(hosts, endpoints.bypass))
    fsspec = json.dumps({"endpoint_url": endpoints.url})  # gcsfs ignores proxy variables
    return {
        "https_proxy": endpoints.proxy_url,
        "HTTPS_PROXY": endpoints.proxy_url,
        "no_proxy": bypass,
        "NO_PROXY": bypass,
        "CURL_CA_BUNDLE": str(endpoints.bundle),
        "REQUESTS_CA_BUNDLE": str(endpoints.bundle),
        "SSL_CERT_FILE": str(endpoints.bundle),
        "HTTPLIB2_CA_CERTS": str(endpoints.bundle),
        "NODE_EXTRA_CA_CERTS": str(endpoints.bundle),
        "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH": str(endpoints.bundle),
        "CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE": str(endpoints.bundle),
        "GOOGLE_APPLICATION_CREDENTIALS": str(folder / "google.json"),
        "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE": str(folder / "token"),
        "BOTO_CONFIG": str(folder / "boto"),
        "GOOGLE_CLOUD_PROJECT": project,
        "CLOUDSDK_CORE_PROJECT": project,
        "NO_GCE_CHECK": "true",  # clients do not wait for a metadata server
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",  # otherwise gcsfs asks for each bucket's type by gRPC first
        "GOOGLE_CLOUD_DISABLE_GRPC": "true",  # google-cloud-logging then speaks HTTP, which is answered here
        "FSSPEC_GS": fsspec,
        "FSSPEC_GCS": fsspec,
        "TRAINSHED_URL": endpoints.url,
    }


def _bypass(hosts: Iterable[str], no_proxy: str) -> Iterable[str]:
    """Return the hosts that bypass the proxy: this machine, `hosts`, and the machine's no_proxy without Google's hosts.

    gRPC reads these variables too: without the cluster's hosts, TensorFlow's replicas would not reach each other.
    """
    entries = [entry.strip() for entry in no_proxy.split(",")]
    machine_hosts = [entry for entry in entries if entry and not _GOOGLE_HOST.endswith(entry.lstrip("*."))]
    return dict.fromkeys((*_NEVER_PROXIED, *hosts, *machine_hosts))


def write_files(folder: Path, texts: Mapping[str, str], *, for_all: bool = False) -> None:
    """Write the files, readable by this user only. Each is replaced atomically.

    `for_all` makes them readable by every user who can reach the folder. It is for containers; on this machine a closed
    parent folder protects them.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if for_all:
        folder.chmod(0o755)
    for name, text in texts.items():
        with atomic_file(folder / name) as file:
            file.write(text.encode())
            if for_all:
                os.fchmod(file.fileno(), 0o644)
