"""How quantities look to people; None is an en dash, never a zero."""

from draftmark.observation import Unit
from draftmark.units import GIB, KIB, MIB

UNKNOWN = "–"


def size(value: float | None) -> str:
    """Bytes: `70.0 GiB`, `893 MiB`, `512 B`."""
    if value is None:
        return UNKNOWN
    for unit, scale in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if abs(value) >= scale:
            scaled = value / scale
            return f"{scaled:.2f} {unit}" if abs(scaled) < 100 else f"{scaled:.1f} {unit}"
    return f"{value:.0f} B"


def signed_size(value: float | None) -> str:
    """A difference in bytes, with its sign."""
    return UNKNOWN if value is None else f"{'+' if value > 0 else ''}{size(value)}"


def count(value: float | None) -> str:
    """Whole numbers with thousands separated: `195,011`."""
    return UNKNOWN if value is None else f"{value:,.0f}"


def duration(value: float | None) -> str:
    """Seconds in the unit that suits them: `4.98 us`, `17.3 ms`, `17.55 s`, `7.5 min`."""
    if value is None:
        return UNKNOWN
    magnitude = abs(value)
    if magnitude >= 120:
        return f"{value / 60:.1f} min"
    if magnitude >= 1:
        return f"{value:.2f} s"
    if magnitude >= 1e-3:
        return f"{value * 1e3:.3g} ms"
    return f"{value * 1e6:.3g} us" if magnitude >= 1e-6 else f"{value * 1e9:.3g} ns"


def per_second(value: float | None) -> str:
    """Tokens a second: `3,104`, `118.6`, `6.3`."""
    if value is None:
        return UNKNOWN
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.1f}" if abs(value) >= 1 else f"{value:.3f}"


def bandwidth(value: float | None) -> str:
    """Bytes a second, in powers of ten as datasheets have them: `14.1 GB/s`, `1.79 TB/s`."""
    if value is None:
        return UNKNOWN
    for unit, scale in (("TB/s", 1e12), ("GB/s", 1e9), ("MB/s", 1e6)):
        if abs(value) >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value:.0f} B/s"


def quantity(value: float | str, unit: Unit) -> str:
    """An observation's value in its unit."""
    if isinstance(value, str):
        return value
    forms = {"bytes": size, "bytes/second": bandwidth, "seconds": duration, "ratio": share}
    return forms[unit](value) if unit in forms else f"{value:,g} {unit}"


def share(value: float | None) -> str:
    """A ratio as a percentage."""
    return UNKNOWN if value is None else f"{value:.1%}" if abs(value) < 0.1 else f"{value:.0%}"
