# SPDX-License-Identifier: GPL-2.0-only
"""An S3 server, SeaweedFS, on a host of its own (`hosts.py`): with a user who may write and one who may only read."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import uuid
from pathlib import Path

import command
from command import ROOT, SLOWER, wait_until
from hosts import Hosts

PORT = 8333
BUCKET = "campaigns"
_SECRET = "secret"
_RIGHTS = {"writer": ["Admin", "Read", "Write", "List", "Tagging"], "reader": ["Read", "List"]}
# All its files, also its sockets, are on a file system of its own. The program may be below /tmp itself.
_START = """set -e
exec 3<"$1"
mount -t tmpfs -o size="$2" s3 /tmp
mkdir /tmp/data
printf %s "$4" >/tmp/rights.json
cd /tmp
exec /proc/self/fd/3 -logtostderr=true server -dir=/tmp/data -ip="$3" -ip.bind="$3" -master.telemetry=false \
    -master.volumeSizeLimitMB=32 -volume.max=32 -filer -s3 -s3.autoCreateBucket=false \
    -s3.port="$5" -s3.config=/tmp/rights.json
"""
# The bucket cannot be made before the server is up.
_BUCKET = """import sys, time
import s3fs
for _ in range(600):
    try:
        s3fs.S3FileSystem().mkdir(sys.argv[1])
        break
    except OSError:
        time.sleep(0.1)
else:
    sys.exit("no S3 server came up")
"""


def program() -> str:
    """The server, fetched where the cache has none."""
    script = ROOT / "vmm" / "setup" / "s3_server.sh"
    made = subprocess.run([script], capture_output=True, text=True, timeout=600 * SLOWER, check=False)
    assert made.returncode == 0, made.stderr
    return made.stdout.strip()


class S3:
    """A server with one bucket, which ends with its host."""

    def __init__(self, hosts: Hosts, host: int, place: Path, size: str = "1g") -> None:
        self._endpoint = f"http://{hosts.address(host)}:{PORT}"
        self._mark = uuid.uuid4().hex
        rights = [
            {"name": name, "credentials": [{"accessKey": name, "secretKey": _SECRET}], "actions": actions}
            for name, actions in _RIGHTS.items()
        ]
        words = [program(), size, hosts.address(host), json.dumps({"identities": rights}), PORT]
        log = place / f"s3-{host}.log"
        hosts.start(host, ["unshare", "--mount", "sh", "-c", _START, "s3", *words], {command.MARK: self._mark}, log)
        hosts.python(0, _BUCKET, BUCKET, environment=self.environment())

    def environment(self, user: str = "writer", secret: str = _SECRET) -> dict[str, str]:
        """What a client's environment has, as the documents say it."""
        return {"AWS_ENDPOINT_URL": self._endpoint, "AWS_ACCESS_KEY_ID": user, "AWS_SECRET_ACCESS_KEY": secret}

    def files(self) -> Path:
        """Its file system, as it is seen from here."""
        found: list[int] = []

        def is_there() -> bool:
            found[:] = [pid for pid in command.marked(self._mark) if command.program(pid) == "weed"]
            return bool(found)

        assert wait_until(is_there, 10)
        return Path(f"/proc/{found[0]}/root/tmp")

    def fill(self) -> None:
        """Leaves no room in its file system."""
        file = os.open(self.files() / "filler", os.O_WRONLY | os.O_CREAT)
        try:
            with contextlib.suppress(OSError):
                while True:
                    os.write(file, bytes(4096))
        finally:
            os.close(file)
