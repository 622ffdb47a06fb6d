"""The process: what is checked before it starts, how HTTP and engine run beside each other, and how both end."""

import asyncio
import logging
import os
import shlex
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, Final, NoReturn

import torch
import transformers
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from draftmark import __version__
from draftmark.embedded import checkpoint
from draftmark.embedded.api import Api
from draftmark.embedded.engine import THREAD, Engine
from draftmark.embedded.loading import Phases, load
from draftmark.embedded.openai import ApiError
from draftmark.embedded.options import Options, parse
from draftmark.embedded.pool import PAGE
from draftmark.errors import BadInput

log: Final = logging.getLogger("draftmark.embedded")

GRACE: Final = 2
"""Seconds for open replies once the process is told to end."""
SWITCH: Final = 0.0005
"""Seconds after which a thread gives way: replies leave promptly beside a busy engine."""


def run() -> int:
    """Run the server until it is told to end. Exit code: 2 where it cannot start; signals end it with 0."""
    options = parse()
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s draftmark.embedded: %(message)s"
    )
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    transformers.logging.disable_progress_bar()
    transformers.logging.set_verbosity_error()
    sys.setswitchinterval(SWITCH)
    for name in (signal.SIGTERM, signal.SIGINT):  # uvicorn takes them over, and raises them again when it has ended
        signal.signal(name, lambda *_: sys.exit(0))
    try:
        serve(options)
    except BadInput as error:
        log.error("%s", error)
        return 2
    return 0


def serve(options: Options) -> None:
    """Check what can be checked at once, then load and serve.

    Raises:
        BadInput: the checkpoint, the device or the port cannot be used.
    """
    info = _info(options)
    config = checkpoint.read_config(options.model, context=options.context)
    listener = _listen(options.host, options.port)
    server = Server()
    try:
        log.info("start %s", " ".join(f"{name}={shlex.quote(str(value))}" for name, value in info.items()))
        asyncio.run(server.run(listener, partial(load, options, config, info, server.phases)))
    except SystemExit:  # after a signal: not waiting for torch's thread, which cannot be stopped amid its work
        log.info("phase=stopping")
        _leave(0)


def _info(options: Options) -> dict[str, Any]:
    """What is known before the model is loaded, for the log and /server_info."""
    found = "cuda" if torch.cuda.is_available() else "cpu"
    device = options.device or found
    if device == "cuda" != found:
        remedy = "install torch for CUDA, or use --device cpu"
        raise BadInput("torch finds no GPU", place="--device cuda", remedy=remedy)
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
        "served_model_name": options.served_model_name or str(options.model),
        "memory": options.memory,
        "started": time.time(),
    }


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except (OSError, OverflowError) as error:
        raise BadInput(f"cannot listen: {error}", place=f"{host}:{port}", remedy="choose another --port") from error


async def still_loading(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers every request until the model is loaded."""
    error = ApiError(503, "the model is being loaded; /health tells when it is ready", code="loading")
    await error.response()(scope, receive, send)


class Server:
    """Loads and serves; itself the ASGI application.

    Where that fails the whole process ends: an engine that is out of memory cannot be trusted.
    """

    def __init__(self) -> None:
        self.phases = Phases()
        self._application: ASGIApp = still_loading
        self._engine: Engine | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        with suppress(asyncio.CancelledError):  # what is still open when uvicorn has been told to end
            await self._application(scope, receive, send)

    async def run(self, listener: socket.socket, load: Callable[[], Api]) -> None:
        """Answer on `listener`, and beside that `load` and take turns, until a signal comes."""
        host, port = listener.getsockname()[:2]
        engine = asyncio.create_task(self._serve(load, url=f"http://{host}:{port}"))
        config = uvicorn.Config(self, log_config=None, lifespan="off", timeout_graceful_shutdown=GRACE)
        await uvicorn.Server(config).serve(sockets=[listener])
        await engine

    async def _serve(self, load: Callable[[], Api], *, url: str) -> None:
        try:
            api = await asyncio.get_running_loop().run_in_executor(THREAD, load)
            with self.phases.phase("ready") as facts:
                self._engine, self._application = api.engine, api.application()
                facts |= {"context": api.engine.context}
                facts |= {name: api.info[name] for name in ("chunk", "max_running", "mem_fraction", "pool_tokens")}
                facts |= {"url": url}
            await api.engine.serve()
        except BadInput as error:
            log.error("%s", error)
            _leave(2)
        except Exception:
            doing = self._engine.activity if self._engine else f"phase={self.phases.current}"
            log.exception("the engine failed in %s", doing)
            _leave(1)


def _leave(code: int) -> NoReturn:
    """End the process now, without waiting for its threads."""
    logging.shutdown()
    os._exit(code)
