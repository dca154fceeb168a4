"""Answers spelled as TensorFlow reads them."""

from __future__ import annotations

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class _Spelled(bytes):
    """A header's name that stays as it is where uvicorn would make all letters small."""

    def lower(self) -> _Spelled:
        return self


#: TensorFlow looks for these two with exactly these letters, and takes an upload for failed without the first
_NAMES = {name.lower(): _Spelled(name) for name in (b"Location", b"Range")}


def with_header_case(app: ASGIApp) -> ASGIApp:
    """The same app, with capitals in the names of its answers' headers where TensorFlow needs them."""

    async def spelled_app(scope: Scope, receive: Receive, send: Send) -> None:
        async def send_spelled(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [(_NAMES.get(name, name), value) for name, value in message["headers"]]
                message = {**message, "headers": headers}
            await send(message)

        await app(scope, receive, send_spelled)

    return spelled_app
