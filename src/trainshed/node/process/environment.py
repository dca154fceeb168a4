"""The environment of user code: what it gets of the server's variables. A named list, so that no secret is in it."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

#: The account, the language and the time zone; where programs and libraries are.
_ACCOUNT = "PATH HOME USER LOGNAME SHELL TERM TZ TMPDIR LANG LANGUAGE LD_LIBRARY_PATH LD_PRELOAD GLIBC_TUNABLES"
#: How programs reach other hosts, and which certificates they trust.
_NETWORK = (
    "http_proxy https_proxy ftp_proxy all_proxy no_proxy HTTP_PROXY HTTPS_PROXY FTP_PROXY ALL_PROXY NO_PROXY "
    "SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE OPENSSL_CONF"
)
PASSED_VARIABLES = frozenset((_ACCOUNT + " " + _NETWORK).split())
#: What frameworks, their libraries and drivers read.
PASSED_PREFIXES = (
    *("LC_", "MALLOC_", "OMP_", "GOMP_", "KMP_", "MKL_", "OPENBLAS_", "GOTO_", "BLIS_", "NUMEXPR_", "NPY_", "NUMPY_"),
    *("TF_", "TF2_", "XLA_", "KERAS_", "JAX_", "TORCH_", "PYTORCH_", "GLOO_", "NCCL_", "GRPC_", "HDF5_", "GCS_"),
    *("CUDA_", "CUDNN_", "CUBLAS_", "NVIDIA_", "HIP_", "HSA_", "ROCR_", "ROCM_", "ONEDNN_", "DNNL_", "ZENDNN_"),
)
#: Of other programs, in spite of their prefix.
_SECRET_PREFIXES = ("TF_VAR_", "TF_TOKEN_")
_SECRET_WORDS = ("TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL", "API_KEY", "ACCESS_KEY", "PRIVATE_KEY")
#: Which package index and cache uv and pip use. Builds of packages get them, replicas and hosts do not.
INSTALLER_PREFIXES = ("UV_", "PIP_")
#: The server's settings and secrets, and variables for its own Python.
_PRIVATE_PREFIXES = ("TRAINSHED_", "PYTHON", "VIRTUAL_ENV")


def inherited_environment() -> dict[str, str]:
    """This process's environment without the server's settings, its secrets and variables for its own Python.

    For programs that are not user code: container tools, the bridge to a cluster, py-spy.
    """
    return {key: value for key, value in os.environ.items() if not key.startswith(_PRIVATE_PREFIXES)}


def user_environment(names: Collection[str] = ()) -> dict[str, str]:
    """What user code gets of this process's environment: the variables on the list, and those in `names`."""
    env = inherited_environment()
    return {key: value for key, value in env.items() if is_passed(key) or key in names}


def build_environment(names: Collection[str] = ()) -> dict[str, str]:
    """What the build of a package gets of this process's environment, and the supervisor that starts it."""
    env = inherited_environment()
    return {
        key: value for key, value in env.items() if is_passed(key) or key in names or key.startswith(INSTALLER_PREFIXES)
    }


def without_installer(env: dict[str, str]) -> dict[str, str]:
    """An environment without the variables for builds."""
    return {key: value for key, value in env.items() if not key.startswith(INSTALLER_PREFIXES)}


def is_passed(name: str) -> bool:
    """Whether user code gets the variable of this name."""
    if name in PASSED_VARIABLES:
        return True
    if name.startswith(_SECRET_PREFIXES) or any(word in name for word in _SECRET_WORDS):
        return False
    return name.startswith(PASSED_PREFIXES)
