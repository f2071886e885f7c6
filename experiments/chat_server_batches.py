"""The ``/files`` and ``/batches`` routes of the loopback chat server: a Batch API that misbehaves on command."""

import itertools
import json
import re
import threading
import time
from collections.abc import Callable
from typing import Any

Answer = Callable[[dict[str, Any]], tuple[int, dict[str, Any]]]


class BatchDesk:
    """Takes files and batches, and answers their requests after a few looks.

    Args:
        answer: Answers the body of a chat completion with a status and a body.

    Attributes:
        looks: Times a batch says that it is in progress before it is over.
        stuck: Whether batches never end.
        answered: Share of a batch that is answered before it is over with ``ending``.
        ending: ``"completed"``, ``"expired"``, ``"cancelled"`` or ``"failed"``.
        queue: Requests that may wait in all; a further batch fails with ``token_limit_exceeded``. None: no limit.
        spoiled: Answers, the first of each batch, that break off.
        status: A status to answer everything with; None for none.
        created: Ids of the batches created.
        asked: Custom ids of every request handed in, in order.
    """

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._lock = threading.RLock()
        self._ids = itertools.count(1)
        self._files: dict[str, bytes] = {}
        self._batches: dict[str, dict[str, Any]] = {}
        self._looks: dict[str, int] = {}
        self.looks = 1
        self.stuck = False
        self.answered = 1.0
        self.ending = "completed"
        self.queue: int | None = None
        self.spoiled = 0
        self.status: int | None = None
        self.created: list[str] = []
        self.asked: list[str] = []

    def handle(
        self, method: str, path: str, query: dict[str, str], content_type: str, body: bytes
    ) -> tuple[int, dict[str, Any] | bytes] | None:
        """Answer a request; None if it is none of ours.

        Args:
            method: ``GET`` or ``POST``.
            path: Such as ``/batches/batch_1``, without the ``/v1``.
            query: The decoded query string.
            content_type: The header.
            body: The body.

        Returns:
            Status and body: JSON types, or the bytes of a file.
        """
        parts = path.strip("/").split("/")
        if self.status is not None and parts[0] in ("files", "batches"):
            return self.status, {"error": {"message": "not here"}}
        with self._lock:
            match (method, *parts):
                case ("POST", "files"):
                    return 200, self._upload(content_type, body)
                case ("GET", "files", file, "content"):
                    return (200, self._files[file]) if file in self._files else _not_found(file)
                case ("POST", "batches"):
                    return 200, self._create(json.loads(body))
                case ("GET", "batches"):
                    return 200, self._list(query)
                case ("GET", "batches", batch):
                    return (200, self._look(batch)) if batch in self._batches else _not_found(batch)
                case ("POST", "batches", batch, "cancel"):
                    if batch not in self._batches:
                        return _not_found(batch)
                    self._end(batch, "cancelled")
                    return 200, self._batches[batch]
        return None

    def forget(self, batch: str) -> None:
        """Lose a batch, as an endpoint does after a while."""
        with self._lock:
            del self._batches[batch]

    def _upload(self, content_type: str, body: bytes) -> dict[str, Any]:
        boundary = re.search(r'boundary="?([^";]+)', content_type)
        found = b""
        for part in body.split(b"--" + boundary.group(1).encode()) if boundary else []:
            head, _, content = part.partition(b"\r\n\r\n")
            if b'name="file"' in head:
                found = content.removesuffix(b"\r\n")
        return self._file(found)

    def _file(self, content: bytes) -> dict[str, Any]:
        name = f"file_{next(self._ids)}"
        self._files[name] = content
        return {
            "id": name,
            "object": "file",
            "bytes": len(content),
            "created_at": int(time.time()),
            "filename": "requests.jsonl",
            "purpose": "batch",
            "status": "processed",
        }

    def _create(self, order: dict[str, Any]) -> dict[str, Any]:
        name = f"batch_{next(self._ids)}"
        keys = [json.loads(line)["custom_id"] for line in self._files[order["input_file_id"]].splitlines()]
        batch = {
            **order,
            "id": name,
            "object": "batch",
            "status": "validating",
            "created_at": int(time.time()),
            "output_file_id": None,
            "error_file_id": None,
            "errors": None,
            "request_counts": {"total": len(keys), "completed": 0, "failed": 0},
        }
        waiting = sum(b["request_counts"]["total"] for b in self._batches.values() if b["status"] == "in_progress")
        self._batches[name] = batch
        self.created.append(name)
        if self.queue is not None and waiting + len(keys) > self.queue:
            batch["status"] = "failed"
            batch["errors"] = {"data": [{"code": "token_limit_exceeded", "message": "the queue is full"}]}
        else:
            batch["status"] = "in_progress"
            self.asked += keys
        return batch

    def _list(self, query: dict[str, str]) -> dict[str, Any]:
        newest = list(self._batches.values())[::-1]
        names = [batch["id"] for batch in newest]
        start = names.index(query["after"]) + 1 if query.get("after") in names else 0
        page = newest[start : start + int(query.get("limit", 20))]
        return {
            "object": "list",
            "data": page,
            "first_id": page[0]["id"] if page else None,
            "last_id": page[-1]["id"] if page else None,
            "has_more": start + len(page) < len(newest),
        }

    def _look(self, name: str) -> dict[str, Any]:
        batch = self._batches[name]
        self._looks[name] = self._looks.get(name, 0) + 1
        if batch["status"] == "in_progress" and not self.stuck and self._looks[name] > self.looks:
            self._end(name, self.ending)
        return batch

    def _end(self, name: str, status: str) -> None:
        batch = self._batches[name]
        batch["status"] = status
        if status == "failed":
            batch["errors"] = {"data": [{"code": "invalid", "message": "the file could not be read"}]}
            return
        orders = [json.loads(line) for line in self._files[batch["input_file_id"]].split(b"\n") if line]
        ready = orders[: round(self.answered * len(orders))]
        good: list[dict[str, Any]] = []
        bad: list[dict[str, Any]] = []
        for number, order in enumerate(ready):
            code, body = self._answer(order["body"])
            if number < self.spoiled:
                message = body["choices"][0]["message"]
                message["content"] = message["content"][: len(message["content"]) // 2]
            response = {"status_code": code, "request_id": "r", "body": body}
            line = {"id": "x", "custom_id": order["custom_id"], "response": response, "error": None}
            (good if code == 200 else bad).append(line)
        for order in orders[len(ready) :]:
            error = {"code": "batch_" + status, "message": f"not asked before the batch was {status}"}
            bad.append({"id": "x", "custom_id": order["custom_id"], "response": None, "error": error})
        for key, lines in (("output_file_id", good), ("error_file_id", bad)):
            if lines:
                # answers come in any order
                content = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in reversed(lines))
                batch[key] = self._file(content.encode())["id"]
        batch["request_counts"] = {"total": len(orders), "completed": len(good), "failed": len(bad)}


def _not_found(name: str) -> tuple[int, dict[str, Any]]:
    return 404, {"error": {"message": f"there is no {name}", "type": "invalid_request_error", "code": "not_found"}}
