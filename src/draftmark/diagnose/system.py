"""Rules for what the operating system refuses, and for libraries and compilers that are not there or do not fit."""

from typing import Final

from draftmark.diagnose.case import Case
from draftmark.diagnose.plain import free, told_by
from draftmark.finding import Change, Finding, Remedy

_CACHES: Final = {
    "huggingface": "HF_HOME",
    "triton": "TRITON_CACHE_DIR",
    "flashinfer": "FLASHINFER_WORKSPACE_BASE",
    "torchinductor": "TORCHINDUCTOR_CACHE_DIR",
    "vllm": "VLLM_CACHE_ROOT",
}
"""What moves a cache, by a word of its folder."""
_SEGMENTS: Final = ("/dev/shm", "/psm_", "/sem.", "/torch_")
_COMPILES: Final = "kernels are compiled where the engine runs"


def too_many_files(case: Case) -> Finding | None:
    """A process, or the machine, has as many files and connections open as it may."""
    signs = case.signs("too many files")
    if not signs or case.failure is not None:
        return None
    if any("system" in sign.values for sign in signs):
        claim, flag = "the machine has as many files open as it may in all", "fs.file-max (sysctl)"
    else:
        claim, flag = "a process has as many files and connections open as it may", "ulimit -n"
    remedy = free(Change(flag=flag, direction="raise"), "in the shell or the service that starts the engine")
    return told_by(case, "too many files", "too-many-files", claim, remedy)


def permission_denied(case: Case) -> Finding | None:
    """The engine's process may not use a file or folder."""
    signs = case.signs("permission denied")
    if not signs:
        return None
    path = signs[0].values["path"]
    claim = f"the engine's process may not use {path}, or not write there"
    return told_by(case, "permission denied", "permission-denied", claim, _allowed(path))


def _allowed(path: str) -> Remedy:
    if path.startswith(_SEGMENTS):
        what = Change(flag="/dev/shm", direction="set", value="writable for the engine's user")
        return free(what, "a segment that another user's crash left there has to go")
    variable = next((name for word, name in _CACHES.items() if word in path), None)
    if variable is not None:
        return free(Change(flag=variable, direction="set"), "a folder that the engine's user may write")
    return free(Change(flag=f"the rights of {path}", direction="set"), "for the user that the engine runs as")


def library_missing(case: Case) -> Finding | None:
    """A library or a module that the engine needs is not where it is looked for."""
    signs = case.signs("library missing")
    if not signs:
        return None
    library, module = signs[0].values.get("library"), signs[0].values.get("module")
    if module is not None:
        remedy = free(
            Change(flag=module, direction="set"), "install it where the engine is, in the version it asks for"
        )
        claim = f"the Python module {module} is not in the Python that was started"
        return told_by(case, "library missing", "not-installed", claim, remedy)
    remedy = free(
        Change(flag="LD_LIBRARY_PATH", direction="set"),
        f"the folder that has {library}; or install it, or a build of the engine for the version that is here",
    )
    claim = f"the loader does not find the library {library}"
    return told_by(case, "library missing", "not-installed", claim, remedy)


def compiler_missing(case: Case) -> Finding | None:
    """What compiles kernels at run time is not there."""
    signs = case.signs("compiler missing")
    if not signs:
        return None
    values = signs[0].values
    if "toolkit" in values:
        what, change = "the CUDA toolkit", Change(flag="CUDA_HOME", direction="set")
    elif "c" in values:
        what, change = "a C compiler", Change(flag="CC", direction="set")
    else:
        name = (values.get("sought") or values.get("shell") or values.get("file") or values["ninja"]).lower()
        what, change = name, Change(flag="CUDA_HOME" if name.endswith("nvcc") else "PATH", direction="set")
    remedy = free(change, f"where it is, or install it: {_COMPILES}")
    return told_by(case, "compiler missing", "not-installed", f"{what} is not found: {_COMPILES}", remedy)


def build_mismatch(case: Case) -> Finding | None:
    """A compiled library wants another C library, or another PyTorch, than is there."""
    signs = case.signs("build mismatch")
    if not signs:
        return None
    values = signs[0].values
    if "needed" in values:
        claim = f"the build needs {values['needed']}, which the C or C++ library of this system does not have"
        why = "one for this system, or a container with a newer system"
    else:
        claim = f"{values['library']} was built against another version of a library than is here: {values['symbol']}"
        why = "install it again in the version that the engine asks for, together with its PyTorch"
    remedy = free(Change(flag="another build of the engine", direction="set"), why)
    return told_by(case, "build mismatch", "wrong-build", claim, remedy)
