"""A small SMTP server with STARTTLS and a login, which keeps what it is sent.

Add here what a real server answers and a test needs. Keep out what a mail should hold. The standard library has a
client alone, and a package for it would be one more of the lock.
"""

from __future__ import annotations

import base64
import contextlib
import socketserver
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage


@dataclass
class Mailbox:
    """What a server got: mails, and of each its sender and recipients, whether it came over TLS, and who logged in."""

    port: int = 0
    mails: list[EmailMessage] = field(default_factory=list)
    envelopes: list[tuple[str, list[str], bool, str]] = field(default_factory=list)


@contextlib.contextmanager
def mail_server(
    tls: ssl.SSLContext | None, login: tuple[str, str] | None = None, refused: str = "", is_implicit: bool = False
) -> Iterator[Mailbox]:
    """A mailbox on 127.0.0.1. With `tls` it offers STARTTLS, or begins with TLS; `login` is asked for; a recipient
    `refused` is refused."""
    box = Mailbox()

    class Talk(socketserver.StreamRequestHandler):
        def setup(self) -> None:
            if is_implicit:
                self.request = tls.wrap_socket(self.request, server_side=True)
            super().setup()

        def answer(self, line: str) -> None:
            self.wfile.write(f"{line}\r\n".encode())

        def handle(self) -> None:
            is_tls, user, sender, recipients = is_implicit, "", "", []
            self.answer("220 mail.example ESMTP")
            while line := self.rfile.readline().decode().strip():
                word, _, rest = line.partition(" ")
                match word.upper():
                    case "EHLO":
                        offers = ["mail.example"]
                        offers += ["STARTTLS"] if tls and not is_tls else []
                        offers += ["AUTH PLAIN"] if login and is_tls else []
                        for one in offers[:-1]:
                            self.answer(f"250-{one}")
                        self.answer(f"250 {offers[-1]}")
                    case "STARTTLS":
                        self.answer("220 go on")
                        self.request = tls.wrap_socket(self.request, server_side=True)
                        self.rfile, self.wfile = self.request.makefile("rb"), self.request.makefile("wb", 0)
                        is_tls = True
                    case "AUTH":
                        _, name, password = base64.b64decode(rest.split()[1]).decode().split("\0")
                        user = name if (name, password) == login else ""
                        self.answer("235 welcome" if user else f"535 5.7.8 wrong password {password}")
                    case "MAIL":
                        sender = rest.partition("<")[2].partition(">")[0]
                        self.answer("530 log in first" if login and not user else "250 ok")
                    case "RCPT":
                        to = rest.partition("<")[2].partition(">")[0]
                        recipients += [] if to == refused else [to]
                        self.answer("550 no such mailbox" if to == refused else "250 ok")
                    case "DATA":
                        self.answer("354 end with .")
                        lines = []
                        while (part := self.rfile.readline()) != b".\r\n":
                            lines.append(part.removeprefix(b"."))
                        box.mails.append(message_from_bytes(b"".join(lines), policy=policy.default))
                        box.envelopes.append((sender, recipients, is_tls, user))
                        self.answer("250 taken")
                    case "QUIT":
                        self.answer("221 bye")
                        return
                    case _:
                        self.answer("250 ok")

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """A client that hangs up, because it does not trust the certificate, is what a test is about."""

    with Server(("127.0.0.1", 0), Talk) as server:
        box.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        try:
            yield box
        finally:
            server.shutdown()
            thread.join()
