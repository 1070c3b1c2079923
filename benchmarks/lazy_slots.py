"""Resident memory of the server with a lazy slot context and without: loaded, grown, shrunk.

Linux only: anonymous resident memory (RssAnon), so that the mapped model does not count.

    python -m benchmarks.lazy_slots opencoti-engine MODEL.gguf
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.lib import table
from tests.lib.server import Server, running

OPTIONS = ("-c", "32768", "-np", "4", "-t", "2", "-fa", "on", "-cram", "0", "--no-warmup")
LAZY = ("--slot-initial-ctx", "512", "--slot-shrink-idle-ms", "2000")
SENTENCE = "The fox ran to the hill and the owl told him of the river. "


def resident_mib(server: Server) -> float:
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    found = re.search(r"^RssAnon:\s+(\d+) kB", status, re.MULTILINE)
    if found is None:
        raise RuntimeError("this kernel does not tell RssAnon")
    return int(found[1]) / 1024


def measure(command: list[str]) -> list[float]:
    with tempfile.TemporaryDirectory() as folder, running(command, Path(folder) / "log") as server:
        seen = [resident_mib(server)]
        prompts = [SENTENCE * 66, "Once. " + SENTENCE * 66]
        body = {"prompt": prompts, "n_predict": 8, "temperature": 0}
        status, answer = server.request("/completion", body, timeout=900)
        assert status == 200, answer
        seen.append(resident_mib(server))
        time.sleep(5)
        seen.append(resident_mib(server))
    return seen


def main() -> None:
    engine, model = sys.argv[1:3]
    base = [engine, "--server", "-m", model, *OPTIONS]
    rows = [["at once", *measure(base)], ["lazy", *measure([*base, *LAZY])]]
    print(table(["KV cache", "loaded MiB", "two slots of 1,000 tokens", "idle"], rows))


if __name__ == "__main__":
    main()
