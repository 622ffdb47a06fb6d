"""Modules that stand in for packages which an engine imports and a question to it does not need."""

import importlib.abc
import importlib.machinery
import types


class Anything(types.ModuleType):
    """A module with whatever is asked of it."""

    __path__: list[str] = []  # noqa: RUF012

    def __getattr__(self, name: str) -> "Anything":
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything(f"{self.__name__}.{name}")

    def __call__(self, *_: object, **__: object) -> "Anything":
        """Itself, whatever it is called with."""
        return self

    def __or__(self, other: object) -> "Anything":
        return self

    def __mro_entries__(self, _: object) -> tuple[type, ...]:
        return (object,)


class Absent(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds `packages` that are not installed; goes into `sys.meta_path`."""

    def __init__(self, packages: tuple[str, ...]) -> None:
        self.packages = packages

    def find_spec(self, name: str, *_: object) -> importlib.machinery.ModuleSpec | None:
        """A specification of an absent package and its parts."""
        absent = name.split(".")[0] in self.packages
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if absent else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Anything:
        """A module with whatever is asked of it."""
        return Anything(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        """Nothing to run."""
        module.__path__ = []
