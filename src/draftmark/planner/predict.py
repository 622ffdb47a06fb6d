"""`plan`: one configuration in, one prediction out; each engine has its own arithmetic."""

from draftmark.configuration import Configuration
from draftmark.errors import BadInput
from draftmark.hardware import Machine
from draftmark.model import Model
from draftmark.planner import embedded
from draftmark.planner.outcome import Plan
from draftmark.units import Bytes


def plan(model: Model, configuration: Configuration, machine: Machine, *, free: Bytes | None = None) -> Plan:
    """Predict what an engine will make of `configuration` on `machine`.

    `free` is the memory that can be taken now, where it was measured; on a GPU that nobody uses it follows from the
    catalogue.

    Raises:
        BadInput: the configuration cannot work, or the engine cannot serve the model.
    """
    check_context(model, configuration)
    if configuration.engine == "embedded":
        return embedded.predict(model, configuration, machine, free=free)
    raise BadInput(f"no arithmetic for engine {configuration.engine!r}", place="--engine", remedy="use embedded")


def check_context(model: Model, configuration: Configuration) -> None:
    """A context beyond the model's own is refused: positions there were never trained.

    Raises:
        BadInput: it is.
    """
    if configuration.context is not None and configuration.context > model.context:
        raise BadInput(
            f"a context of {configuration.context} tokens is beyond the model's own {model.context}",
            place=model.name,
            remedy=f"ask for at most {model.context}, or change the checkpoint's rope_scaling",
        )
