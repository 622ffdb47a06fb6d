"""A plan as people read it."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from draftmark.ledger import Ledger
from draftmark.planner import CERTAIN, STARTING, Plan, Risk
from draftmark.report.quantities import count, share, size
from draftmark.units import Bytes


def plan(found: Plan) -> Iterator[RenderableType]:
    """The heading, the ledger of the worst GPU, the pool, what fits into it, the risks, and what was filled in."""
    yield from banner(found)
    yield heading(found)
    for ledger in found.ledgers:
        yield ledger_table(ledger)
    yield pool_text(found)
    yield room_table(found)
    if found.risks:
        yield risk_table(found)
    if found.reasons:
        yield reason_table(found)
    for note in found.notes:
        yield Text(f"Note: {note}.")
    for flag in found.not_understood:
        yield Text(f"Not understood, and not in the prediction: {flag}", style="bold")


def banner(found: Plan) -> Iterator[Text]:
    """That it cannot start and why, before anything else."""
    for conflict in found.conflicts:
        yield Text(f"It cannot start this way: {conflict}.", style="bold red")
    fatal = [risk for risk in found.risks if risk.phase in STARTING and risk.probability >= CERTAIN]
    for risk in fatal:
        yield Text(f"It cannot start this way ({risk.phase}): {risk.why}.", style="bold red")
    if not found.fits and not found.conflicts and not fatal:
        yield Text("It cannot start this way: nothing is left for the pool.", style="bold red")
    likely = [risk for risk in found.risks if risk.probability >= 0.5]
    starting = [risk for risk in likely if risk.phase in STARTING]
    for risk in starting:
        if risk.probability < CERTAIN:
            yield Text(f"It probably cannot start this way ({said(risk)}).", style="bold yellow")
    if likely and not starting and not found.conflicts:
        worst = max(likely, key=lambda risk: risk.probability)
        yield Text(f"It starts, and probably runs out of memory when it serves ({said(worst)}).", style="bold yellow")


def said(risk: Risk) -> str:
    """A risk in a few words."""
    return f"{risk.phase}, {share(risk.probability)}: {risk.why}"


def heading(found: Plan) -> Text:
    """What is planned, on what."""
    version = f" {found.configuration.version}" if found.configuration.version else ""
    where = f"{found.gpus} x {found.device.name}" if found.device.kind != "cpu" else found.device.name
    exact = "from tensor headers" if found.exact_weights else "worked out from the config's sizes"
    return Text(
        f"{found.model} ({found.architecture}) with {found.configuration.engine}{version} on {where}; weights {exact}"
    )


def ledger_table(ledger: Ledger) -> Table:
    """One rank's memory, adding up to its capacity."""
    table = Table(title=f"Memory of rank {ledger.rank}: {size(ledger.capacity)}", title_justify="left")
    table.add_column("account")
    table.add_column("size", justify="right")
    table.add_column("why", overflow="fold")
    for entry in ledger.entries:
        if entry.account == "free" and entry.bytes < 0:
            table.add_row(
                "missing", size(Bytes(-entry.bytes)), "everything above is more than the capacity", style="bold red"
            )
        else:
            table.add_row(entry.account, size(entry.bytes), entry.why)
    return table


def pool_text(found: Plan) -> Text:
    """The pool, with its interval."""
    pool = found.pool
    between = f", 90 % between {count(pool.low)} and {count(pool.high)}" if pool.low != pool.high else ""
    request = f" and {size(found.bytes_per_request)} a request" if found.bytes_per_request else ""
    where = "each GPU" if found.configuration.parallel.pipeline == 1 else "each GPU of the stage that sets the pool"
    token = f"{count(found.bytes_per_token)} B a token{request} on {where}"
    lines = [f"Pool: {count(pool.tokens)} tokens{between}; {token}."]
    if found.held != pool.tokens and found.pool.tokens:
        ranks = found.configuration.parallel.decode_context
        lines.append(
            f"That is what the engine prints, one rank's share; {ranks} decode context ranks together hold "
            f"{count(found.held)} tokens of context."
        )
    if found.pools > 1:
        lines.append(
            f"Each of {found.pools} data-parallel ranks has such a pool: {count(found.held * found.pools)} tokens of "
            "context in all, but a request lives in one of them."
        )
    lines.append(f"Longest single request: {count(found.longest_request)} tokens, prompt and output together.")
    return Text("\n".join(lines), style="bold")


def room_table(found: Plan) -> Table:
    """How many requests of which length."""
    table = Table(title="Requests at once", title_justify="left")
    several = found.pools > 1
    for heading_text in ("length", "each rank", f"all {found.pools} ranks") if several else ("length", "requests"):
        table.add_column(heading_text, justify="right")
    for room in found.room:
        table.add_row(count(room.length), count(room.requests), *([count(room.in_all)] if several else []))
    return table


def risk_table(found: Plan) -> Table:
    """Out of memory, by phase."""
    table = Table(title="Risk of running out of memory", title_justify="left")
    table.add_column("phase")
    table.add_column("probability", justify="right")
    table.add_column("why", overflow="fold")
    for risk in found.risks:
        table.add_row(risk.phase, share(risk.probability), risk.why)
    return table


def reason_table(found: Plan) -> Table:
    """What the user left open."""
    table = Table(title="Filled in", title_justify="left")
    for heading_text in ("field", "value", "why"):
        table.add_column(heading_text, overflow="fold")
    for reason in found.reasons:
        table.add_row(reason.field, reason.value, reason.why)
    return table
