"""An engine for tests of supervision: a real process that serves HTTP, writes a log, and fails on request.

It has no model. `--behaviour` is one of: serve, oom, crash, segfault, kill, hang, silent-pool, stubborn, slow.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

OOM = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 896.00 MiB. GPU 3 has a total capacity of "
    "94.97 GiB of which 893.00 MiB is free. Including non-PyTorch memory, this process has 94.09 GiB memory in use. "
    "Of the allocated memory 91.20 GiB is allocated by PyTorch, with 626.00 MiB allocated in private pools (e.g., "
    "CUDA Graphs), and 1.40 GiB is reserved by PyTorch but unallocated."
)


class Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps({"path": self.path}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_request(self, code: object = "-", size: object = "-") -> None:
        return


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def misbehave(behaviour: str) -> None:
    if behaviour == "oom":
        say(OOM)
        sys.exit(1)
    if behaviour == "crash":
        raise ValueError("the weights are upside down")
    if behaviour == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    if behaviour == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if behaviour in {"hang", "stubborn-hang"}:
        say("importing for ever")
        time.sleep(600)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--behaviour", default="serve")
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    if options.behaviour.startswith("stubborn"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    say("version 7")
    say("phase weights")
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    sys.stdout.write("loading:  50%|#####     | 1/2\r")
    sys.stdout.flush()
    time.sleep(0.3)
    say("loading: 100%|##########| 2/2")
    misbehave(options.behaviour)
    if options.behaviour != "silent-pool":
        say("phase pool")
        say("pool tokens 4096")
    server = ThreadingHTTPServer((options.host, options.port), Answer)
    say("phase ready")
    if options.behaviour == "late-oom":
        server.timeout = 1.0
        for _ in range(3):
            server.handle_request()
        say("phase prefill")
        say(OOM)
        os._exit(1)
    server.serve_forever()


if __name__ == "__main__":
    main()
