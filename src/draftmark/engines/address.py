"""Where a server answers: a URL as users write it, taken apart."""

from urllib.parse import SplitResult, urlsplit


def split(url: str) -> SplitResult:
    """The parts of an http or https URL, which has a host and, if any, a TCP port.

    Raises:
        ValueError: it is none; the message says why.
    """
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError(f"{url!r} has characters that a URL must write as %xx, or a host as xn--")
    parts = urlsplit(url)
    if parts.username is not None or parts.password is not None:
        raise ValueError("a name or password in a URL would be kept and shown; a key is given apart from it")
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(f"{url!r} is not an http or https URL")
    if parts.port == 0:  # asking for the port raises ValueError where it is beyond 65535 or no number
        raise ValueError("no server answers at port 0")
    return parts
