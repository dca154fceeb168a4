"""A client of the API that logs each operation to a history."""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlsplit

import google_crc32c

from trainshed.testing.reliability.history import NEVER_S, ClientOperation, History, OperationOutcome, now_s
from trainshed.testing.reliability.models import JobSeen

REQUEST_TIMEOUT_S = 60.0
_REFUSALS = (429, 503, 507)  #: the server is busy or full, and says so


class ServerGoneError(Exception):
    """Nobody listens: nothing was sent."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A whole response, or None as `status` if the connection was lost before it."""

    status: int | None
    body: bytes = b""
    headers: Mapping[str, str] | None = None
    ended_s: float = NEVER_S

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def crc32c(data: bytes) -> str:
    """The checksum of an object's bytes, as the API shows it."""
    return base64.b64encode(google_crc32c.value(data).to_bytes(4, "big")).decode()


class LoggedClient:
    """One thread of a load. Raises `ServerGoneError`, and logs nothing, while the server is down."""

    def __init__(self, number: int, url: str, token: str, history: History) -> None:
        self.number = number
        self._host = urlsplit(url).netloc
        self._token = token
        self._history = history

    def send(self, method: str, path: str, body: Any = None, *, token: str | None = None) -> Reply:
        """Send a request: bytes as they are, else as JSON. Logs a response that is the server's own fault."""
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        # A connection of its own: one that the server closes while it is idle would look like a lost response.
        with closing(http.client.HTTPConnection(self._host, timeout=REQUEST_TIMEOUT_S)) as connection:
            try:
                connection.connect()
            except OSError as exc:
                raise ServerGoneError(str(exc)) from exc
            try:
                connection.request(method, path, data, {"authorization": f"Bearer {token or self._token}"})
                response = connection.getresponse()
                headers = {name.lower(): value for name, value in response.getheaders()}
                reply = Reply(response.status, response.read(), headers, now_s())
            except TimeoutError:
                self._history.add_server_error(f"{method} {path}: no response in {REQUEST_TIMEOUT_S:.0f} s")
                return Reply(None)
            except (OSError, http.client.HTTPException):
                return Reply(None, ended_s=now_s())
        if response.status >= 500 and response.status not in _REFUSALS:
            self._history.add_server_error(f"{method} {path}: {response.status} {reply.body[:300]!r}")
        return reply

    def _log(
        self, began_s: float, key: str, action: str, reply: Reply, value: Any = None, **args: Any
    ) -> ClientOperation:
        if reply.status is None or reply.status in _REFUSALS or reply.status >= 500:
            outcome = OperationOutcome.UNKNOWN
        else:
            outcome = OperationOutcome.OK if reply.status < 300 else OperationOutcome.FAIL
        operation = ClientOperation(
            client=self.number,
            key=key,
            action=action,
            outcome=outcome,
            invoked_s=began_s,
            ended_s=reply.ended_s,
            args=args,
            value=value if outcome is OperationOutcome.OK else None,
        )
        self._history.add(operation)
        return operation

    def put_object(self, bucket: str, name: str, data: bytes, *, if_generation: int | None = None) -> ClientOperation:
        condition = "" if if_generation is None else f"&ifGenerationMatch={if_generation}"
        path = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={quote(name, safe='')}{condition}"
        began_s, reply = now_s(), self.send("POST", path, data)
        return self._log_put(began_s, f"object/{bucket}/{name}", reply, crc32c(data), if_generation)

    def compose_object(self, bucket: str, name: str, sources: Mapping[str, bytes]) -> ClientOperation:
        """Put an object together of others that nobody changes. `sources` has their bytes."""
        body = {"sourceObjects": [{"name": each} for each in sources]}
        path = f"/storage/v1/b/{bucket}/o/{quote(name, safe='')}/compose"
        began_s, reply = now_s(), self.send("POST", path, body)
        return self._log_put(began_s, f"object/{bucket}/{name}", reply, crc32c(b"".join(sources.values())), None)

    def _log_put(
        self, began_s: float, key: str, reply: Reply, digest: str, if_generation: int | None
    ) -> ClientOperation:
        generation = int(reply.json["generation"]) if reply.status == 200 else None
        return self._log(began_s, key, "put", reply, generation, digest=digest, if_generation=if_generation)

    def read_object(self, bucket: str, name: str) -> ClientOperation:
        """Read the bytes. An object whose bytes are not those of its checksum is logged with both."""
        began_s = now_s()
        reply = self.send("GET", f"/storage/v1/b/{bucket}/o/{quote(name, safe='')}?alt=media")
        return self._log_read(began_s, f"object/{bucket}/{name}", reply, _object_value)

    def delete_object(self, bucket: str, name: str) -> ClientOperation:
        began_s, reply = now_s(), self.send("DELETE", f"/storage/v1/b/{bucket}/o/{quote(name, safe='')}")
        return self._log(began_s, f"object/{bucket}/{name}", "delete", reply, True)

    def list_objects(self, bucket: str, prefix: str, names: list[str]) -> None:
        """List a bucket, and log that as a read of each of these names."""
        began_s, reply = now_s(), self.send("GET", f"/storage/v1/b/{bucket}/o?prefix={quote(prefix, safe='')}")
        if reply.status != 200:
            return
        items = {each["name"]: (each["crc32c"], int(each["generation"])) for each in reply.json.get("items", ())}
        for name in names:
            self._log(began_s, f"object/{bucket}/{name}", "read", reply, items.get(name))

    def create_bucket(self, project: str, bucket: str) -> ClientOperation:
        began_s, reply = now_s(), self.send("POST", f"/storage/v1/b?project={project}", {"name": bucket})
        return self._log(began_s, f"bucket/{bucket}", "create", reply, True)

    def read_bucket(self, bucket: str) -> ClientOperation:
        began_s, reply = now_s(), self.send("GET", f"/storage/v1/b/{bucket}")
        return self._log_read(began_s, f"bucket/{bucket}", reply, lambda reply: True)

    def delete_bucket(self, bucket: str) -> ClientOperation:
        began_s, reply = now_s(), self.send("DELETE", f"/storage/v1/b/{bucket}")
        return self._log(began_s, f"bucket/{bucket}", "delete", reply, True)

    def create_model(self, project: str, model: str, description: str) -> ClientOperation:
        body = {"name": model, "description": description}
        began_s, reply = now_s(), self.send("POST", f"/v1/projects/{project}/models", body)
        return self._log(began_s, f"model/{project}/{model}", "create", reply, True, content=description)

    def read_model(self, project: str, model: str) -> ClientOperation:
        began_s, reply = now_s(), self.send("GET", f"/v1/projects/{project}/models/{model}")
        return self._log_read(began_s, f"model/{project}/{model}", reply, lambda reply: reply.json["description"])

    def delete_model(self, project: str, model: str) -> ClientOperation:
        began_s, reply = now_s(), self.send("DELETE", f"/v1/projects/{project}/models/{model}")
        return self._log(began_s, f"model/{project}/{model}", "delete", reply, True)

    def create_token(self, user: str) -> tuple[str, str] | None:
        """Create a token. Returns its id and its secret, or None if no response came: nobody can ever use that one."""
        began_s, reply = now_s(), self.send("POST", "/trainshed/v1/tokens", {"user": user, "role": "owner"})
        if reply.status != 200:
            return None
        token = reply.json
        self._log(began_s, f"token/{token['id']}", "create", reply, True)
        return token["id"], token["token"]

    def read_token(self, token: str, secret: str) -> ClientOperation:
        """Use a token. One that was revoked is as one that never was."""
        began_s, reply = now_s(), self.send("GET", "/trainshed/v1/tokens", token=secret)
        return self._log_read(began_s, f"token/{token}", reply, lambda reply: True, absent=401)

    def revoke_token(self, token: str) -> ClientOperation:
        began_s, reply = now_s(), self.send("POST", f"/trainshed/v1/tokens/{token}:revoke", {})
        return self._log(began_s, f"token/{token}", "delete", reply, True)

    def create_job(self, project: str, job: str, training: Mapping[str, Any]) -> ClientOperation:
        body = {"jobId": job, "trainingInput": training}
        began_s, reply = now_s(), self.send("POST", f"/v1/projects/{project}/jobs", body)
        return self._log(began_s, f"job/{project}/{job}", "create", reply, True)

    def read_job(self, project: str, job: str) -> ClientOperation:
        began_s, reply = now_s(), self.send("GET", f"/v1/projects/{project}/jobs/{job}")
        return self._log_read(began_s, f"job/{project}/{job}", reply, _job_value)

    def cancel_job(self, project: str, job: str) -> ClientOperation:
        began_s, reply = now_s(), self.send("POST", f"/v1/projects/{project}/jobs/{job}:cancel", {})
        return self._log(began_s, f"job/{project}/{job}", "cancel", reply, True)

    def _log_read(
        self, began_s: float, key: str, reply: Reply, value: Callable[[Reply], Any], *, absent: int = 404
    ) -> ClientOperation:
        if reply.status == absent:
            gone = Reply(200, ended_s=reply.ended_s)
            return self._log(began_s, key, "read", gone)
        return self._log(began_s, key, "read", reply, value(reply) if reply.status == 200 else None)


def _object_value(reply: Reply) -> tuple[str, int]:
    headers = reply.headers or {}
    declared = dict(each.strip().split("=", 1) for each in headers["x-goog-hash"].split(","))["crc32c"]
    actual = crc32c(reply.body)
    digest = actual if actual == declared else f"bytes {actual}, checksum {declared}"
    return digest, int(headers["x-goog-generation"])


def _job_value(reply: Reply) -> JobSeen:
    body = reply.json
    generation = int.from_bytes(base64.b64decode(body["etag"]), "big")
    return JobSeen(body["state"], generation, body.get("endTime", ""), body.get("errorMessage", ""))
