"""What both Python peers share: an org's data, its mail, and its way to the relay.

The SQL asks what digestd's built-in source asks, for one org. The templates are digestd's own, which
Jinja2 reads as well.
"""

import datetime
import email.message
import email.policy
import email.utils
import hashlib
import hmac
import pathlib
import smtplib

import jinja2

UTC = datetime.timezone.utc
TEMPLATES = pathlib.Path(__file__).resolve().parents[2] / "templates"
ACCENT = "#1d4ed8"
KEY = b"a key that signs unsubscribe links"
SHOWN = 10

# The row that says "this org's digest for this week is sent", committed before the first mail leaves.
SENT_TABLE = """
    CREATE TABLE IF NOT EXISTS sent (org_id text, week text, at timestamptz DEFAULT now(), UNIQUE (org_id, week))"""

SENT = "INSERT INTO sent (org_id, week) VALUES (%s, %s) ON CONFLICT DO NOTHING"

ORGS = """
    SELECT o.id, o.name, array_agg(a.email ORDER BY a.id), array_agg(a.name ORDER BY a.id)
    FROM digestd.orgs o JOIN digestd.admins a ON a.org_id = o.id
    WHERE o.active AND a.active AND a.weekly_digest
    GROUP BY o.id
    ORDER BY o.id"""

FIGURES = """
    SELECT kind, count(*) FILTER (WHERE occurred_at >= %(start)s), count(*) FILTER (WHERE occurred_at < %(start)s)
    FROM digestd.activity
    WHERE org_id = %(org)s AND occurred_at >= %(before)s AND occurred_at < %(end)s
    GROUP BY kind
    ORDER BY 2 DESC, kind"""

ITEMS = """
    SELECT title, url, actor, occurred_at, count(*) OVER ()
    FROM digestd.activity
    WHERE org_id = %(org)s AND occurred_at >= %(start)s AND occurred_at < %(end)s
    ORDER BY coalesce(value, 0) DESC, occurred_at DESC, id
    LIMIT %(shown)s"""

WORDS = {
    "title": "Weekly digest",
    "quiet": "A quiet week: nothing to report. We will be back when there is.",
    "quiet-short": "A quiet week: nothing to report.",
    "untitled": "(untitled)",
    "more": "and {n} more",
    "subject": "{org}: weekly digest, {period}",
    "column-what": "What",
    "column-value": "This week",
    "column-change": "Change",
    "why": "You get this mail because you are an admin of {org} and have asked for the weekly digest.",
    "unsubscribe": "Unsubscribe",
    "settings": "Settings",
    "sent-by": "Sent by {product}",
}


def week():
    """The ISO week before this one: its first moment, its end, and its name."""
    today = datetime.datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    end = today - datetime.timedelta(days=today.weekday())
    start = end - datetime.timedelta(days=7)
    return start, end, end.strftime("%G-W%V")


def gather(connection, org, name, start, end):
    """What the templates see of one org."""
    asked = {"org": org, "before": start - (end - start), "start": start, "end": end, "shown": SHOWN}
    figures = connection.execute(FIGURES, asked).fetchall()
    items = connection.execute(ITEMS, asked).fetchall()
    entries = [figure(label, now, before) for label, now, before in figures]
    rows = [{"title": title, "url": url, "actor": actor, "when": at} for title, url, actor, at, _ in items]
    total = items[0][4] if items else 0
    sections = [
        {"title": "This week", "kind": "figures", "entries": entries, "total": len(entries), "more": 0},
        {"title": "Highlights", "kind": "rows", "entries": rows, "total": total, "more": total - len(rows)},
    ]
    last = end - datetime.timedelta(days=1)
    return {
        "org": {"name": name},
        "period": {"text": f"{start:%-d %b} – {last:%-d %b %Y}"},
        "sections": [section for section in sections if section["entries"]],
        "highlights": [entry for entry in entries if entry["value"] != "0"][:3],
        "quiet": not entries and not rows,
    }


def figure(label, now, before):
    most = max(now, before, 1)
    return {
        "label": label,
        "value": str(now),
        "previous": str(before),
        "bar": round(100 * now / most),
        "bar_before": round(100 * before / most),
    }


def number(value):
    return f"{int(value):,}"


def delta(value, previous):
    now, before = int(value), int(previous)
    if now == before:
        return "no change"
    if before == 0:
        return "new"
    percent = round(100 * abs(now - before) / before)
    return f"▲ up {percent}%" if now > before else f"▼ down {percent}%"


def make_environment():
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=jinja2.select_autoescape(["html"]),
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["t"] = lambda word, **given: WORDS[word].format(**given)
    environment.filters["number"] = number
    environment.filters["delta"] = delta
    environment.filters["date"] = lambda at: f"{at:%a %-d %b, %H:%M}"
    environment.filters["safe_link"] = lambda url: url if url and url.startswith("https://") else None
    return environment


class Mails:
    """Data to messages."""

    def __init__(self):
        environment = make_environment()
        self.html = environment.get_template("digest.html")
        self.text = environment.get_template("digest.txt")
        self.subject = environment.get_template("digest.subject.txt")

    def make(self, context, org, address, name, week):
        reference = hmac.new(KEY, f"{org}\0{address}".encode(), hashlib.sha256).hexdigest()[:24]
        link = f"https://digest.example.org/u/{reference}"
        context = context | {
            "recipient": {"name": name},
            "links": {"unsubscribe": link},
            "brand": {"product": "Weekly digest", "accent": ACCENT, "accent_dark": "#8ab4f8", "address": []},
            "lang": "en",
            "dir": "ltr",
            "start": "left",
            "end": "right",
        }
        message = email.message.EmailMessage(policy=email.policy.SMTP)
        message["From"] = "Digests <digests@example.org>"
        message["To"] = email.utils.formataddr((name, address))
        message["Subject"] = self.subject.render(context).strip()
        message["Date"] = email.utils.format_datetime(datetime.datetime.now(UTC))
        message["Message-ID"] = f"<{week}.{reference}@example.org>"
        message["List-Id"] = "<weekly-digest.example.org>"
        message["List-Unsubscribe"] = f"<{link}>"
        message["List-Unsubscribe-Post"] = "List-Unsubscribe=One-Click"
        message["Auto-Submitted"] = "auto-generated"
        message.set_content(self.text.render(context))
        message.add_alternative(self.html.render(context), subtype="html")
        return message.as_bytes()


class Relay:
    """One connection that stays open, and is opened anew where the relay has closed it."""

    def __init__(self, port):
        self.port = port
        self.smtp = smtplib.SMTP("127.0.0.1", port, local_hostname="localhost", timeout=60)

    def hand_over(self, address, message):
        try:
            self.smtp.sendmail("digests@example.org", [address], message)
        except smtplib.SMTPServerDisconnected:
            self.smtp = smtplib.SMTP("127.0.0.1", self.port, local_hostname="localhost", timeout=60)
            self.smtp.sendmail("digests@example.org", [address], message)

    def quit(self):
        self.smtp.quit()
