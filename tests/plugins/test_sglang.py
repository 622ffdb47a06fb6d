"""Registering: only a checked SGLang is hooked, one variable turns it off, and no outcome raises."""

import logging
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from draftmark.plugins import contract, sglang

PUBLISHED = Path(__file__).parent.parent / "data" / "sglang"


class Registry:
    """SGLang's HookRegistry, as far as it is used."""

    hooks: list[tuple[str, Callable[..., None], str]]

    @classmethod
    def register(cls, target: str, hook: Callable[..., None], how: str) -> None:
        cls.hooks.append((target, hook, how))


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> type[Registry]:
    """A hook registry in place of SGLang's, and the published source in place of an installation."""
    Registry.hooks = []
    module = types.ModuleType("sglang.srt.plugins.hook_registry")
    module.HookRegistry, module.HookType = Registry, types.SimpleNamespace(AFTER="after")  # type: ignore[attr-defined]
    for name in ("sglang", "sglang.srt", "sglang.srt.plugins"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.delenv(sglang.VARIABLE, raising=False)
    installed(monkeypatch, "0.5.23")
    return Registry


def installed(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    source = (PUBLISHED / "0.5.23" / "triton_backend.py.txt").read_text()
    monkeypatch.setattr("importlib.metadata.version", lambda _: version)
    monkeypatch.setattr(sglang, "installed_source", lambda: source)


class Backend:
    """A backend as its constructor leaves it."""

    def __init__(self, *, use_mla: bool = True, skip_prefill: bool = False) -> None:
        self.use_mla, self.skip_prefill = use_mla, skip_prefill
        self.use_verify_shared_kv = False
        self.verify_shared_kv_fwd: Any = None
        self.extend_attention_fwd: Any = self.engine

    def engine(self) -> None:
        """The engine's own function."""


def test_a_latent_backend_gets_the_slot_filled(registry: type[Registry]) -> None:
    sglang.register()
    [(target, hook, how)] = registry.hooks
    assert (target, how) == (sglang.TARGET, "after")
    backend = Backend()
    hook(None, backend, "model runner", skip_prefill=False)
    assert backend.use_verify_shared_kv is True
    assert callable(backend.verify_shared_kv_fwd)
    assert backend.extend_attention_fwd != backend.engine


@pytest.mark.parametrize("backend", [Backend(use_mla=False), Backend(skip_prefill=True)])
def test_other_backends_stay_as_they_are(registry: type[Registry], backend: Backend) -> None:
    sglang.register()
    registry.hooks[0][1](None, backend)
    assert backend.use_verify_shared_kv is False
    assert backend.extend_attention_fwd == backend.engine


@pytest.mark.parametrize(
    ("mode", "level", "said"),
    [("off", logging.INFO, "left as it is"), ("maybe", logging.WARNING, "maybe is none of on, off, shadow")],
)
def test_the_variable(
    registry: type[Registry], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, mode: str, level: int,
    said: str,
) -> None:  # fmt: skip
    monkeypatch.setenv(sglang.VARIABLE, mode)
    with caplog.at_level(logging.INFO):
        sglang.register()
    assert not registry.hooks
    assert [(record.levelno, said in record.getMessage()) for record in caplog.records] == [(level, True)]


@pytest.mark.parametrize("mode", ["", "On", "SHADOW", "garbage", "1"])
def test_any_value_of_the_variable_is_survived(
    registry: type[Registry], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    monkeypatch.setenv(sglang.VARIABLE, mode)
    sglang.register()
    hooked = mode.lower() in ("on", "shadow")
    assert (len(registry.hooks), len(caplog.records)) == ((1, 0) if hooked else (0, 1))


def test_another_registry_is_left_alone_in_one_line(
    registry: type[Registry], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    del registry
    monkeypatch.delattr(sys.modules["sglang.srt.plugins.hook_registry"], "HookType")
    sglang.register()
    [record] = caplog.records
    assert "SGLang is left as it is: cannot import name 'HookType'" in record.getMessage()


@pytest.mark.parametrize("reason", [UnicodeDecodeError("utf-8", b"", 0, 1, "odd"), SyntaxError("odd"), OSError("odd")])
def test_a_source_that_cannot_be_read_is_left_alone_in_one_line(
    registry: type[Registry], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, reason: Exception
) -> None:
    def fail() -> str:
        raise reason

    monkeypatch.setattr(sglang, "installed_source", fail)
    sglang.register()
    assert not registry.hooks
    [record] = caplog.records
    assert "odd" in record.getMessage()


def test_a_backend_that_cannot_be_filled_is_built_all_the_same(
    registry: type[Registry], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    sglang.register()
    monkeypatch.setitem(sys.modules, "draftmark.plugins.verify", None)
    backend = Backend()
    registry.hooks[0][1](None, backend)
    assert backend.use_verify_shared_kv is False
    assert backend.extend_attention_fwd == backend.engine
    [record] = caplog.records
    assert "SGLang is left as it is: import of draftmark.plugins.verify halted" in record.getMessage()


def test_on_amd_the_engines_own_slot_stays(
    registry: type[Registry], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("torch.version.hip", "7.0")
    sglang.register()
    backend = Backend()
    registry.hooks[0][1](None, backend)
    assert backend.verify_shared_kv_fwd is None
    assert "this PyTorch is for AMD's" in caplog.text


def test_an_unchecked_version_is_left_alone_in_one_line(
    registry: type[Registry], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    installed(monkeypatch, "0.6.0")
    sglang.register()
    assert not registry.hooks
    [record] = caplog.records
    assert "version 0.6.0 was not checked" in record.getMessage()


def test_no_sglang_is_one_line_too(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.delenv(sglang.VARIABLE, raising=False)
    sglang.register()
    assert "SGLang is left as it is" in caplog.text


def test_the_entry_point_names_it() -> None:
    from importlib.metadata import entry_points

    [entry] = [entry for entry in entry_points(group="sglang.srt.plugins") if entry.name == "draftmark"]
    assert entry.load() is sglang.register
    assert contract.SUPPORTED
