# SPDX-License-Identifier: GPL-2.0-only
"""Patches as mail: an mbox as b4 and lore.kernel.org give it, or a Maildir; the cover letter is kept."""

from __future__ import annotations

import email
import email.policy
import gzip
import mailbox
import re
import tempfile
from dataclasses import dataclass
from email.message import EmailMessage
from pathlib import Path

from .errors import Refused

_PATCH = re.compile(r"^\s*\[(?P<words>[^\]]*\bPATCH\b[^\]]*)\]\s*(?P<title>.*)$", re.IGNORECASE | re.DOTALL)
_NUMBER = re.compile(r"\b(?P<number>\d+)/(?P<count>\d+)\b")
_VERSION = re.compile(r"\bv(?P<version>\d+)\b", re.IGNORECASE)
_BASE = re.compile(r"^base-commit: ([0-9a-f]{7,64})\s*$", re.MULTILINE)
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True)
class Mail:
    """A message that is a patch, or the cover letter, which has the number 0."""

    number: int
    count: int
    version: int
    subject: str
    author: str
    id: str
    text: str
    raw: bytes

    @property
    def is_patch(self) -> bool:
        """Whether it changes anything."""
        return re.search(r"^diff --git |^--- [^\n]+\n\+\+\+ ", self.text, re.MULTILINE) is not None


@dataclass(frozen=True)
class Mails:
    """A series, in order."""

    patches: list[Mail]
    cover: Mail | None
    #: The commit that it is for, if it says it.
    base: str
    #: What was left out.
    notes: list[str]


def is_mail(place: Path) -> bool:
    """Whether these are messages: a file, or a Maildir."""
    return place.is_file() or (place / "cur").is_dir() or (place / "new").is_dir()


def read(place: Path) -> Mails:
    """The newest version of the series in a mailbox. Raises ``Refused``."""
    mails = [mail for raw in _messages(place) if (mail := _parsed(raw))]
    mails = list({mail.id or mail.raw: mail for mail in mails}.values())
    if not any(mail.is_patch for mail in mails):
        raise Refused(f"{place} has no patch: expected messages with [PATCH] in the subject; name the series' mbox")
    version = max(mail.version for mail in mails if mail.is_patch)
    notes = [
        f"version {each} of the series is left out; version {version} is there"
        for each in sorted({mail.version for mail in mails if mail.is_patch} - {version})
    ]
    mails = [mail for mail in mails if mail.version == version]
    cover = next((mail for mail in mails if mail.number == 0 and not mail.is_patch), None)
    patches = sorted((mail for mail in mails if mail.is_patch), key=lambda mail: mail.number)
    count = max(mail.count for mail in [*patches, *filter(None, [cover])])
    numbers = [mail.number for mail in patches]
    if missing := sorted(set(range(1, count + 1)) - set(numbers)):
        plural = "patches" if len(missing) > 1 else "patch"
        named = ", ".join(map(str, missing))
        raise Refused(f"{place} lacks {plural} {named} of {count}; fetch the whole series, as with b4 am")
    if twice := sorted({number for number in numbers if numbers.count(number) > 1}):
        raise Refused(f"{place} has patch {twice[0]} of {count} twice; name an mbox of one series")
    bases = [found for mail in [*filter(None, [cover]), *patches] for found in _BASE.findall(mail.text)]
    return Mails(patches, cover, bases[0] if bases else "", notes)


def _messages(place: Path) -> list[bytes]:
    try:
        if place.is_dir():
            box = mailbox.Maildir(place, create=False)
            return [box.get_bytes(key) for key in box.keys()]  # noqa: SIM118
        data = place.read_bytes()
        if data.startswith(_GZIP):
            data = gzip.decompress(data)
        if not data.startswith(b"From "):
            # One patch, or what git format-patch has put together without a line for each.
            return [data]
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            found = mailbox.mbox(file.name, create=False)
            return [found.get_bytes(key) for key in found.keys()]  # noqa: SIM118
    except (OSError, EOFError) as error:
        raise Refused(f"{place} could not be read: {error}; name an mbox or a Maildir") from error


def _parsed(raw: bytes) -> Mail | None:
    """A message whose subject says that it belongs to a series; answers do not."""
    message = email.message_from_bytes(raw, policy=email.policy.default)
    assert isinstance(message, EmailMessage)
    subject = " ".join(str(message["Subject"] or "").split())
    found = _PATCH.match(subject)
    if found is None:
        return None
    number = _NUMBER.search(found["words"])
    version = _VERSION.search(found["words"])
    body = message.get_body(("plain",))
    try:
        text = str(body.get_content()) if body else ""
    except (LookupError, ValueError):
        text = raw.decode(errors="replace")
    return Mail(
        int(number["number"]) if number else 1,
        int(number["count"]) if number else 1,
        int(version["version"]) if version else 1,
        found["title"],
        str(message["From"] or ""),
        str(message["Message-ID"] or ""),
        text.replace("\r\n", "\n"),
        raw,
    )
