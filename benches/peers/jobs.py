"""The same work as script.py, by a job queue: Procrastinate, one worker process.

    python benches/peers/jobs.py DATABASE RELAY_PORT

A job per org, deferred under a queueing lock; the worker runs CONCURRENCY of them at once, each thread
with a database and a relay connection of its own. As the lock is gone once a job has ended, a job also
commits the row of script.py first. Prints how many mails were sent, and their bytes.
"""

import asyncio
import concurrent.futures
import sys
import threading

import procrastinate
import psycopg

import digests

CONCURRENCY = 16
# Jobs that are deferred at once: as many as the pool has connections.
DEFERRING = 16

DATABASE, PORT = sys.argv[1], int(sys.argv[2])
START, END, WEEK = digests.week()
app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=DATABASE, min_size=1, max_size=DEFERRING))
mails = digests.Mails()
mine = threading.local()
results = []


@app.task(queue="digests")
async def send(org, name, addresses, names):
    results.append(await asyncio.to_thread(work, org, name, addresses, names))


def work(org, name, addresses, names):
    if not hasattr(mine, "connection"):
        mine.connection = psycopg.connect(DATABASE, autocommit=True)
        mine.relay = digests.Relay(PORT)
    if mine.connection.execute(digests.SENT, (org, WEEK)).rowcount == 0:
        return 0, 0
    context = digests.gather(mine.connection, org, name, START, END)
    sent = size = 0
    for address, admin in zip(addresses, names):
        message = mails.make(context, org, address, admin, WEEK)
        mine.relay.hand_over(address, message)
        sent, size = sent + 1, size + len(message)
    return sent, size


async def defer(org, name, addresses, names, places):
    async with places:
        try:
            job = send.configure(queueing_lock=f"{WEEK} {org}")
            await job.defer_async(org=org, name=name, addresses=addresses, names=names)
        except procrastinate.exceptions.AlreadyEnqueued:
            pass


async def main():
    asyncio.get_running_loop().set_default_executor(concurrent.futures.ThreadPoolExecutor(CONCURRENCY))
    with psycopg.connect(DATABASE, autocommit=True) as connection:
        connection.execute(digests.SENT_TABLE)
        orgs = connection.execute(digests.ORGS).fetchall()
        new = connection.execute("SELECT to_regclass('procrastinate_jobs') IS NULL").fetchone()[0]
    async with app.open_async():
        if new:
            await app.schema_manager.apply_schema_async()
        places = asyncio.Semaphore(DEFERRING)
        await asyncio.gather(*(defer(*org, places) for org in orgs))
        await app.run_worker_async(
            queues=["digests"], concurrency=CONCURRENCY, wait=False, listen_notify=False, install_signal_handlers=False
        )
    print(sum(sent for sent, _ in results), sum(size for _, size in results))


asyncio.run(main())
