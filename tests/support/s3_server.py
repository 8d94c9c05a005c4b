"""An S3 on a free loopback port: moto's server in a process of its own; s3fs, botocore and HTTP are the real ones."""

import subprocess
import sys
from contextlib import contextmanager

SERVE = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
server.stop()
"""
KEYS = {"key": "nobody", "secret": "nothing"}


@contextmanager
def s3_server():
    """Options for `open_fsspec`, with a bucket `cold` to be used. The server ends when its input does."""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", SERVE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        port = int(process.stdout.readline())
        yield {
            **KEYS,
            "client_kwargs": {"endpoint_url": f"http://127.0.0.1:{port}"},
        }
    finally:
        process.stdin.close()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
