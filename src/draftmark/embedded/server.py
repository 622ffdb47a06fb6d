"""The process: HTTP on the main thread, the engine on another, and how both end."""

import logging
import os
import shlex
import signal
import socket
import sys
import threading
import time
from types import FrameType
from typing import Final, NoReturn

import torch
import transformers
import uvicorn

from draftmark import __version__
from draftmark.embedded import checkpoint
from draftmark.embedded.api import Api
from draftmark.embedded.engine import Engine
from draftmark.embedded.loading import Phases, load
from draftmark.embedded.metrics import Metrics
from draftmark.embedded.options import Options, parse
from draftmark.embedded.pool import PAGE, check_layers
from draftmark.errors import BadInput

log: Final = logging.getLogger("draftmark.embedded")

GRACE: Final = 2.0
"""Seconds for open replies, and for the turn in progress, once the process is told to end."""
SWITCH: Final = 0.0005
"""Seconds after which a thread gives way: replies leave promptly beside a busy engine."""


def run() -> int:
    """Run the server until it is told to end. Exit code: 0, or 2 where it cannot start."""
    options = parse()
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s draftmark.embedded: %(message)s"
    )
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    transformers.logging.disable_progress_bar()
    transformers.logging.set_verbosity_error()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, _end)
    try:
        return _serve(options)
    except BadInput as error:
        log.error("%s", error)
        return 2


def _end(_: int, __: FrameType | None) -> NoReturn:
    raise SystemExit(0)


def _serve(options: Options) -> int:
    device = _device(options.device)
    config = checkpoint.read_config(options.model, context=options.context)
    check_layers(config)
    listener = _listen(options.host, options.port)
    host, port = listener.getsockname()[:2]
    metrics = Metrics()
    facts = _facts(options, device)
    log.info("start %s", " ".join(f"{name}={shlex.quote(str(value))}" for name, value in facts.items()))
    api = Api(name=options.served_name, metrics=metrics, info=facts)
    engine_thread = EngineThread(options, config, device, api, metrics, url=f"http://{host}:{port}")
    http = uvicorn.Server(
        uvicorn.Config(
            api.application(), log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=int(GRACE)
        )
    )
    sys.setswitchinterval(SWITCH)
    engine_thread.start()
    try:
        http.run(sockets=[listener])
    finally:
        engine_thread.end()
    return 0


def _device(asked: str | None) -> str:
    if asked == "cuda" and not torch.cuda.is_available():
        raise BadInput(
            "torch finds no GPU", place="--device cuda", remedy="install torch for CUDA, or use --device cpu"
        )
    return asked or ("cuda" if torch.cuda.is_available() else "cpu")


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise BadInput(f"cannot listen: {error}", place=f"{host}:{port}", remedy="choose another --port") from error


def _facts(options: Options, device: str) -> dict[str, object]:
    """What is known before the model is loaded, for the log and /server_info."""
    return {
        "engine": "draftmark.embedded",
        "version": __version__,
        "torch": str(torch.__version__),
        "transformers": transformers.__version__,
        "device": device,
        "device_name": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "threads": torch.get_num_threads(),
        "page": PAGE,
        "model": str(options.model),
        "served_model_name": options.served_name,
        "memory": options.memory,
        "started": time.time(),
    }


class EngineThread(threading.Thread):
    """Loads and serves. Where it fails, the whole process ends: an engine that is out of memory cannot be trusted."""

    def __init__(
        self,
        options: Options,
        config: transformers.PreTrainedConfig,
        device: str,
        api: Api,
        metrics: Metrics,
        *,
        url: str,
    ) -> None:
        super().__init__(name="engine", daemon=True)
        self._options, self._config, self._device = options, config, device
        self._api, self._metrics, self._url = api, metrics, url
        self._phases = Phases()
        self._engine: Engine | None = None

    def run(self) -> None:
        """Load, serve until stopped."""
        try:
            self._run()
        except BadInput as error:
            log.error("%s", error)
            _leave(2)
        except BaseException:
            doing = self._engine.activity if self._engine else f"phase={self._phases.current}"
            log.exception("the engine failed in %s", doing)
            _leave(1)

    def _run(self) -> None:
        loaded = load(self._options, self._config, self._device, self._phases)
        self._engine = Engine(loaded, self._metrics)
        self._metrics.pool.set(loaded.pool.tokens)
        self._api.engine = self._engine
        self._phases.current = "ready"
        self._phases.end(
            context=loaded.context, chunk=loaded.chunk, max_running=loaded.max_running, mem_fraction=loaded.fraction,
            pool_tokens=loaded.pool.tokens, url=self._url,
        )  # fmt: skip
        self._engine.serve()

    def end(self) -> None:
        """Stop serving; a thread that cannot be stopped, as while loading, ends with the process."""
        if self._engine:
            self._engine.stop()
            self.join(GRACE)
        log.info("phase=stopping")
        if self.is_alive():
            _leave(0)


def _leave(code: int) -> NoReturn:
    """End the process now, from any thread, without waiting for the others."""
    logging.shutdown()
    os._exit(code)
