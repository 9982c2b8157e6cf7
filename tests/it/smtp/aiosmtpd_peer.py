"""A relay made of aiosmtpd, which is to say of OpenSSL: TLS, AUTH, and one line per message taken."""

import asyncio
import ssl
import sys

from aiosmtpd.smtp import SMTP, AuthResult


class Counting:
    async def handle_RCPT(self, server, session, envelope, address, options):
        if address == "gone@x.org":
            return "550 5.1.1 no such user"
        envelope.rcpt_tos.append(address)
        return "250 2.1.5 ok"

    async def handle_DATA(self, server, session, envelope):
        if len(envelope.rcpt_tos) != 1:
            return "554 5.5.1 one recipient, please"
        print("took", envelope.rcpt_tos[0], len(envelope.content), flush=True)
        return "250 2.0.0 taken"


def authenticate(server, session, envelope, mechanism, data):
    right = (data.login, data.password) == (b"user", b"p\xc3\xa4ss word")
    # "handled" would mean that the answer was given already.
    return AuthResult(success=right, handled=False)


async def main(mode, certificate, key):
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)
    starttls = mode == "starttls"
    login = {"authenticator": authenticate, "auth_required": True, "auth_require_tls": starttls}
    upgrade = {"tls_context": tls, "require_starttls": True} if starttls else {}

    def connection():
        return SMTP(Counting(), hostname="relay.test", **login, **upgrade)

    listening = await asyncio.get_running_loop().create_server(
        connection, "127.0.0.1", 0, ssl=None if starttls else tls
    )
    print(listening.sockets[0].getsockname()[1], flush=True)
    await listening.serve_forever()


asyncio.run(main(*sys.argv[1:]))
