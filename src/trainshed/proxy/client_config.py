"""What leads Google's own clients on this machine to the server: variables, and files that hold a token."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

_NEVER_PROXIED = ("localhost", "127.0.0.1", "::1")
_GOOGLE = "storage.googleapis.com"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEndpoints:
    """How programs on this machine get to the server."""

    url: str
    tls_url: str
    proxy_url: str
    bundle: Path  #: the authorities that they trust, the server's own among them
    bypass: str = ""  #: what the machine's own no_proxy says


def config_files(
    reach: ServerEndpoints, *, project: str, folder: Path, token: str, state: Path | None = None
) -> dict[str, str]:
    """The texts that hold the token, by file name: for Trainshed's command line, Google's libraries, and gsutil.

    `folder` is where they are seen. gsutil keeps its notes in there too, unless `state` is another place for them.
    """
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
            "default_project_id": project,
            "software_update_check_period": 0,
            "state_dir": state or folder / "gsutil",
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


def client_environment(
    reach: ServerEndpoints, *, project: str, folder: Path, hosts: Iterable[str] = ()
) -> dict[str, str]:
    """The variables that go with the files in `folder`. None of them is secret. `hosts` are never proxied."""
    bypass = ",".join(_bypass(hosts, reach.bypass))
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
        "GOOGLE_CLOUD_PROJECT": project,
        "CLOUDSDK_CORE_PROJECT": project,
        "NO_GCE_CHECK": "true",  # nothing waits for a metadata server
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",  # or gcsfs asks for each bucket's type by gRPC first
        "FSSPEC_GS": fsspec,
        "FSSPEC_GCS": fsspec,
        "TRAINSHED_URL": reach.url,
    }


def _bypass(hosts: Iterable[str], machines: str) -> Iterable[str]:
    """Whom to speak to without the proxy: this machine, the given hosts, and whom the machine says, Google aside.

    gRPC goes by these variables too: TensorFlow's replicas would not find each other without the cluster's hosts.
    """
    entries = [entry.strip() for entry in machines.split(",")]
    kept = [entry for entry in entries if entry and not _GOOGLE.endswith(entry.lstrip("*."))]
    return dict.fromkeys((*_NEVER_PROXIED, *hosts, *kept))


def write_files(folder: Path, texts: Mapping[str, str], *, for_all: bool = False) -> None:
    """Put the texts into files that this user alone can read. A reader sees an old file or a new one.

    `for_all`: whoever sees the folder may read them, for one that a container sees and that is in a closed one here.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if for_all:
        folder.chmod(0o755)
    for name, text in texts.items():
        fresh = folder / f".{name}.{os.getpid()}.new"
        with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(text)
            if for_all:
                os.fchmod(file.fileno(), 0o644)
        fresh.rename(folder / name)
