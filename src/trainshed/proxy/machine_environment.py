"""What the environment of the server says about the network and Google Cloud."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineEnvironment:
    """The server's environment variables about the network and Google Cloud."""

    https_proxy: str = ""
    no_proxy: str = ""
    ca_files: tuple[Path, ...] = ()  #: CA bundles that programs on this machine trust
    has_google_credentials: bool = False

    @classmethod
    def read(cls, env: Mapping[str, str]) -> Self:
        bundles = [env[name] for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE") if env.get(name)]
        gcloud = Path(env.get("CLOUDSDK_CONFIG") or Path(env.get("HOME") or "/") / ".config" / "gcloud")
        return cls(
            https_proxy=env.get("https_proxy") or env.get("HTTPS_PROXY") or "",
            no_proxy=env.get("no_proxy") or env.get("NO_PROXY") or "",
            ca_files=tuple(dict.fromkeys(Path(path) for path in bundles)),
            has_google_credentials=bool(env.get("GOOGLE_APPLICATION_CREDENTIALS"))
            or (gcloud / "application_default_credentials.json").is_file(),
        )
