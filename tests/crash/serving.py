"""A real server in a process of its own, and writers that keep what it acknowledged to them."""

from __future__ import annotations

import http.client
import json
import os
import pathlib
import queue
import signal
import threading

from tests.support.forking import Forked

ROOT = pathlib.Path(__file__).parents[2]
ANSWER_S = 30.0


class Served:
    """`python -m topics serve` on a directory, at a port of its own unless one is named."""

    def __init__(self, path, *, port=0, **env):
        command = ["-m", "topics", "serve", "--data", str(path), "--port", str(port)]
        self.process = Forked(command, cwd=ROOT, env=os.environ | env)
        self.port = int(self.until("server.listening")["url"].rpartition(":")[2])
        self.until("server.ready")

    def until(self, event):
        """Read the log up to an event."""
        seen = []
        for line in self.process.stderr:
            seen.append(line)
            if line.startswith("{") and (fields := json.loads(line))["event"] == event:
                return fields
        raise AssertionError("".join(seen))

    def connect(self):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=ANSWER_S)

    def end(self, how):
        """Send a signal, wait for the end. Returns the exit code and what the log said meanwhile."""
        self.process.send_signal(how)
        _, rest = self.process.communicate()
        return self.process.returncode, rest

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end(signal.SIGKILL)


def ask(connection, method, path, body=None):
    """(status, fields) of one request."""
    headers = {} if body is None else {"Content-Type": "application/json"}
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read())


class Writers:
    """Threads that append, one after another's answer, until the server is gone or refuses."""

    def __init__(self, server, life, count):
        self.acks = queue.SimpleQueue()
        self.refusals = []
        self._server, self._life = server, life
        self._threads = [threading.Thread(target=self._write, args=[i], daemon=True) for i in range(count)]
        for thread in self._threads:
            thread.start()

    def _write(self, thread):
        connection = self._server.connect()
        n = 0
        try:
            while True:
                records = [{"data": [self._life, thread, n, i]} for i in range(1 + n % 3)]
                status, fields = ask(connection, "POST", "/v0/topics/t", {"records": records})
                if status != 200:
                    self.refusals.append((status, fields["error"]["code"]))
                    return
                self.acks.put(json.dumps([thread, n, fields["seqs"]]))
                n += 1
        except (OSError, http.client.HTTPException, ValueError):
            return  # it is gone
        finally:
            connection.close()

    def wait_for(self, acks):
        """The next so many acknowledgements."""
        return [self.acks.get(timeout=ANSWER_S) for _ in range(acks)]

    def end(self):
        """All of them have ended; what they were told last."""
        for thread in self._threads:
            thread.join(ANSWER_S)
            assert not thread.is_alive()
        rest = []
        while not self.acks.empty():
            rest.append(self.acks.get())
        return rest
