"""The plain script that a careful person would write: psycopg, jinja2, smtplib, one process.

    python benches/peers/script.py DATABASE RELAY_PORT

For each org it commits a row under a unique index first, so that no second run sends the week again; then
it gathers, renders and hands over. What it had begun when it dies is lost. Prints how many mails were
sent, and their bytes.
"""

import sys

import psycopg

import digests


def main():
    database, port = sys.argv[1], int(sys.argv[2])
    start, end, week = digests.week()
    mails = digests.Mails()
    relay = digests.Relay(port)
    sent = size = 0
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute(digests.SENT_TABLE)
        for org, name, addresses, names in connection.execute(digests.ORGS).fetchall():
            if connection.execute(digests.SENT, (org, week)).rowcount == 0:
                continue
            try:
                context = digests.gather(connection, org, name, start, end)
                for address, admin in zip(addresses, names):
                    message = mails.make(context, org, address, admin, week)
                    relay.hand_over(address, message)
                    sent += 1
                    size += len(message)
            except Exception as error:  # One broken org must not stop the others.
                print(f"{org}: {error!r}", file=sys.stderr)
    relay.quit()
    print(sent, size)


main()
