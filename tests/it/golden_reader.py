"""Reads mails by Python's email package and prints what it found, as JSON, one line each."""

import email
import email.header
import email.policy
import email.utils
import json
import sys


def mailboxes(message, plain, name):
    """Every mailbox that the structured parser finds.

    Their names come from the older parser: up to Python 3.12 the structured one keeps the blank between two
    encoded words, which RFC 2047 (section 6.2) takes away.
    """
    if not message[name]:
        return []
    boxes = message[name].addresses
    names = [found for found, _ in email.utils.getaddresses([plain[name]])]
    assert len(names) == len(boxes), (names, boxes)
    decoded = [str(email.header.make_header(email.header.decode_header(found))) for found in names]
    return [[found, box.addr_spec] for found, box in zip(decoded, boxes)]


def lines(text):
    return text.replace("\r\n", "\n").rstrip("\n")


for path in sys.argv[1:]:
    with open(path, "rb") as file:
        content = file.read()
    message = email.message_from_bytes(content, policy=email.policy.default)
    plain = email.message_from_bytes(content, policy=email.policy.compat32)
    parts = list(message.walk())
    defects = [repr(defect) for part in parts for defect in part.defects]
    defects += [f"{name}: {defect!r}" for part in parts for name, value in part.items() for defect in value.defects]
    print(json.dumps({
        "headers": [name.lower() for name in message.keys()],
        "subject": str(message["Subject"]),
        "from": mailboxes(message, plain, "From"),
        "to": mailboxes(message, plain, "To"),
        "reply_to": mailboxes(message, plain, "Reply-To"),
        "message_id": message["Message-ID"].strip("<>"),
        "parts": [part.get_content_type() for part in parts],
        "text": lines(message.get_body(("plain",)).get_content()),
        "html": lines(message.get_body(("html",)).get_content()),
        "defects": defects,
    }))
