"""Whether a module behaves the same in a process that has the runtime's modules imported already.

Three things can make a difference: a variable that is read once, when Python starts or a framework is imported; a file
of the job that shadows an imported module; and code that may set such a variable itself.
"""

from __future__ import annotations

import functools
import os
import re
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import ModuleType
    from typing import Iterator

#: Read when the process starts.
_AT_START = frozenset(("HOME", "LANG", "LANGUAGE", "GLIBC_TUNABLES"))
_AT_START_PREFIXES = ("PYTHON", "LC_", "LD_", "MALLOC_")
_ALLOWED = frozenset(("PYTHONPATH", "PYTHONUNBUFFERED"))  # the first is applied afterwards, the second is always set
#: Read when TensorFlow or a dependency is imported: found by tracing `getenv` and `os.environ`.
_AT_IMPORT = """
ABSL_PYTHON_PROFILE_FILE DISABLE_HOST_SEND_RECV_REGISTRATION ENABLE_RUNTIME_UPTIME_TELEMETRY
GCS_ADDITIONAL_REQUEST_HEADER GCS_ALLOWED_BUCKET_LOCATIONS GCS_APPEND_MODE GCS_MATCHING_PATHS_CACHE_MAX_AGE
GCS_MATCHING_PATHS_CACHE_MAX_ENTRIES GCS_METADATA_REQUEST_TIMEOUT_SECS GCS_READAHEAD_BUFFER_SIZE_BYTES
GCS_READ_CACHE_BLOCK_SIZE_MB GCS_READ_CACHE_MAX_SIZE_MB GCS_READ_CACHE_MAX_STALENESS GCS_READ_REQUEST_TIMEOUT_SECS
GCS_REQUEST_CONNECTION_TIMEOUT_SECS GCS_REQUEST_IDLE_TIMEOUT_SECS GCS_RESOLVE_REFRESH_SECS
GCS_RETRY_CONFIG_INIT_DELAY_TIME_US GCS_RETRY_CONFIG_MAX_DELAY_TIME_US GCS_RETRY_CONFIG_MAX_RETRIES
GCS_STAT_CACHE_MAX_AGE GCS_STAT_CACHE_MAX_ENTRIES GCS_THROTTLE_TOKEN_RATE GCS_WRITE_REQUEST_TIMEOUT_SECS
GFORTRAN_UNBUFFERED_ALL GRPC_THREAD_POOL_VERBOSE_FAILURES HDF5_DEBUG HDF5_DISABLE_VERSION_CHECK HDF5_DRIVER
HDF5_EXTFILE_PREFIX HDF5_PLUGIN_PATH HDF5_PLUGIN_PRELOAD HDF5_USE_FILE_LOCKING HDF5_VDS_PREFIX HDF5_VOL_CONNECTOR
KERAS_BACKEND KERAS_HOME KERAS_MAX_EPOCHS KERAS_MAX_STEPS_PER_EPOCH KERAS_NNX_ENABLED LLVM_OVERRIDE_PRODUCER
NPY_DISABLE_CPU_FEATURES NPY_ENABLE_CPU_FEATURES NPY_NUMPY_2_BEHAVIOR NPY_PROMOTION_STATE NUMPY_MADVISE_HUGEPAGE
NUMPY_WARN_IF_NO_MEM_POLICY OMP_ADAPTIVE OPENBLAS_BLOCK_FACTOR OPENBLAS_CORETYPE OPENBLAS_DEFAULT_NUM_THREADS
OPENBLAS_L2_SIZE OPENBLAS_MAIN_FREE OPENBLAS_THREAD_TIMEOUT OPENBLAS_VERBOSE OPENSSL_CONF OPENSSL_ia32cap
PANDAS_COPY_ON_WRITE PANDAS_FUTURE_INFER_STRING PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION PSUTIL_DEBUG
TEMPORARILY_DISABLE_PROTOBUF_VERSION_CHECK TF2_BEHAVIOR TF_CPP_LOG_THREAD_ID TF_CPP_MAX_VLOG_LEVEL
TF_CPP_VLOG_FILENAME TF_CPP_VMODULE TF_ENABLED_DEVICE_TYPES TF_ENABLE_CONTROL_FLOW_V2 TF_ENABLE_ONEDNN_OPTS
TF_ENABLE_ZENDNN_OPTS TF_FORWARD_COMPATIBILITY_DELTA_DAYS TF_FUNCTION_JIT_COMPILE_DEFAULT TF_JIT_COMPILE_REWRITE
TF_NP_CHECK_LINK TF_NP_DOC_FORM TF_NP_SIG_MISMATCH_IS_ERROR TF_OPTIONALS_IN_GRADIENTS
TF_PLUGGABLE_DEVICE_LIBRARY_PATH TF_USE_MODULAR_FILESYSTEM TF_XLA_SHARDING_FOR_RESOURCE_VARIABLES
WRAPT_DISABLE_EXTENSIONS ZENDNN_CONV_ALGO
"""
IMPORT_TIME_VARIABLES = frozenset(_AT_IMPORT.split())
#: The same for PyTorch, MKL, oneDNN and OpenMP. PyTorch reads hundreds when it is imported.
_AT_IMPORT_PREFIXES = ("TORCH", "PYTORCH_", "AOT_", "AOTINDUCTOR_", "MKL", "ONEDNN_", "DNNL_", "GOMP_", "OMP_")
#: Thread counts of NumPy and PyTorch: applied afterwards if the job sets it, but not if its code does.
THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS")

_CODE_VARIABLES = IMPORT_TIME_VARIABLES | frozenset(THREAD_VARIABLES)
_READS = (b"environ.get(", b"getenv(")  #: before a name in code: the variable is read, not set
_SCAN_MAX_BYTES = 32 << 20
_STARTUP_MODULES = frozenset(("sitecustomize", "usercustomize"))


def import_time_environment(env: dict[str, str]) -> dict[str, str]:
    """The part of an environment that must be set before start and imports to have an effect."""
    return {
        name: value
        for name, value in env.items()
        if name not in _ALLOWED
        and (
            name in IMPORT_TIME_VARIABLES
            or name in _AT_START
            or name.startswith(_AT_START_PREFIXES)
            or _is_read_by_torch(name)
        )
    }


def _is_read_by_torch(name: str) -> bool:
    return name.startswith(_AT_IMPORT_PREFIXES) and name not in THREAD_VARIABLES


def cold_start_reason(
    env: dict[str, str], folder: str, start: dict[str, str], settled: frozenset[str] = frozenset()
) -> str:
    """Why a module with this environment, in `folder`, must not run in this process. Empty if it may.

    `start` is the `import_time_environment` at the start of this process. `settled` are variables that were read since.
    """
    required = import_time_environment(env)
    for name in sorted(set(required) | set(start)):
        if required.get(name) != start.get(name):
            return "%s is read when Python starts or a framework is imported" % name
    for name in sorted(settled & set(env)):
        return "%s is read when a framework is imported" % name
    paths = [os.path.join(folder, path) for path in env.get("PYTHONPATH", "").split(os.pathsep) if path]
    for path in [folder, *paths]:
        name = shadowed_module(path, sys.modules)
        if name:
            return "the job has a module %s of its own" % name
    return _variable_in_code(tuple(paths), _CODE_VARIABLES | settled)


def shadowed_module(path: str, modules: dict[str, ModuleType], package: str = "") -> str:
    """An imported module that `path` would have provided instead. Empty if there is none."""
    try:
        names = sorted(os.listdir(path))
    except (FileNotFoundError, NotADirectoryError):
        return ""
    for entry in names:
        module = package + entry.split(".")[0]
        if module in _STARTUP_MODULES:
            return module
        existing = modules.get(module)
        if existing is None or module in sys.builtin_module_names:
            continue
        entry_path = os.path.join(path, entry)
        if os.path.isfile(entry_path):
            if entry.endswith((".py", ".pyc", ".so")):
                return module
        elif "." not in entry:
            if os.path.exists(os.path.join(entry_path, "__init__.py")):
                return module
            if getattr(existing, "__file__", None) is None:  # a folder of a namespace package such as `google`
                shadowed = shadowed_module(entry_path, modules, module + ".")
                if shadowed:
                    return shadowed
    return ""


@functools.lru_cache(maxsize=8)  # the packages of a job don't change, and it may have many replicas
def _variable_in_code(paths: tuple[str, ...], names: frozenset[str]) -> str:
    alternatives = [*sorted(names), *("%s[A-Z0-9_]*" % prefix for prefix in _AT_IMPORT_PREFIXES)]
    pattern = re.compile(("[\"'](%s)[\"']" % "|".join(alternatives)).encode())
    budget = _SCAN_MAX_BYTES
    for file in _sources(paths):
        with open(file, "rb") as source:
            content = source.read(budget)
        budget -= len(content)
        if budget <= 0:
            return "the job's packages are too large to be looked through"
        for match in pattern.finditer(content):
            if not content[: match.start()].rstrip().endswith(_READS):
                return "%s names %s, which is read when a framework is imported" % (
                    os.path.basename(file),
                    match.group(1).decode(),
                )
    return ""


def _sources(paths: tuple[str, ...]) -> Iterator[str]:
    for path in paths:
        for folder, _, names in os.walk(path):
            for name in names:
                if name.endswith(".py") and os.path.isfile(os.path.join(folder, name)):
                    yield os.path.join(folder, name)
