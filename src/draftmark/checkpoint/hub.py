"""A checkpoint's config and tensor headers from the Hugging Face Hub: never its weights."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any, Final

from draftmark.checkpoint.files import Files, read_json
from draftmark.checkpoint.headers import hub_tensors
from draftmark.errors import BadInput

_PATIENCE: Final = 4.0
"""Seconds that the Hub gets to answer."""
_LOCAL_REMEDY: Final = "or download its config.json elsewhere and pass that file"


def on_hub(repo: str, revision: str | None) -> Files:
    """The config and headers of `repo`, kept in the user's cache once fetched.

    Raises:
        BadInput: the repository cannot be had; the remedy tells how.
    """
    import platformdirs

    cache = Path(platformdirs.user_cache_dir("draftmark")) / "headers"
    away = not _answers()
    with _translated(repo, revision):
        config, commit = _config(repo, revision, away=away)
        quantization = None if "quantization_config" in config else _modelopt(repo, revision, away=away)
        tensors = hub_tensors(repo, commit, cache, away=away)
    return Files(
        place=f"{repo} config.json",
        name=repo,
        config=config,
        quantization=quantization,
        tensors=tensors,
        revision=commit,
    )


def _answers() -> bool:
    """Whether the Hub answers at all within a few seconds: its own client would retry for half a minute.

    On a thread of its own, because nothing bounds how long a name is looked up.
    """
    from huggingface_hub import constants, get_session

    if constants.is_offline_mode():
        return False
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # its retries are no news for the user
    answered = Event()

    def ask() -> None:
        with suppress(_transport_error(), OSError):
            get_session().head(constants.ENDPOINT, timeout=_PATIENCE)
            answered.set()

    asking = Thread(target=ask, daemon=True)
    asking.start()
    asking.join(_PATIENCE)
    return answered.is_set()


def _transport_error() -> type[Exception]:
    """Base of what the Hub's client raises where nothing answers: httpx's or httpx2's, by the client's version."""
    from huggingface_hub.errors import HfHubHTTPError

    base = HfHubHTTPError.__bases__[0]
    assert issubclass(base, Exception)
    return base


def _config(repo: str, revision: str | None, *, away: bool) -> tuple[dict[str, Any], str]:
    from huggingface_hub import hf_hub_download

    path = Path(hf_hub_download(repo, "config.json", revision=revision, local_files_only=away))
    return read_json(path), path.parent.name


def _modelopt(repo: str, revision: str | None, *, away: bool) -> dict[str, Any] | None:
    from huggingface_hub import hf_hub_download, try_to_load_from_cache
    from huggingface_hub.errors import LocalEntryNotFoundError, RemoteEntryNotFoundError

    name = "hf_quant_config.json"
    try:
        return read_json(Path(hf_hub_download(repo, name, revision=revision, local_files_only=away)))
    except RemoteEntryNotFoundError:
        return None
    except LocalEntryNotFoundError:
        # Offline, the cache remembers by an object of its own that the file does not exist.
        if try_to_load_from_cache(repo, name, revision=revision) is None:
            raise
        return None


@contextmanager
def _translated(repo: str, revision: str | None) -> Iterator[None]:
    """The Hub's errors as ours. The order matters: its classes are each other's subclasses."""
    from huggingface_hub import errors

    try:
        yield
    except errors.GatedRepoError as error:
        remedy = f"accept its terms on the Hub and run `hf auth login` (or set HF_TOKEN), {_LOCAL_REMEDY}"
        raise BadInput("the repository is gated", place=repo, remedy=remedy) from error
    except errors.RevisionNotFoundError as error:
        raise BadInput(f"no revision {revision!r}", place=repo, remedy="leave it out for the newest") from error
    except errors.RepositoryNotFoundError as error:
        remedy = f"check the name, run `hf auth login` if it is private, {_LOCAL_REMEDY}"
        raise BadInput("no such repository on the Hub, or a private one", place=repo, remedy=remedy) from error
    except errors.RemoteEntryNotFoundError as error:
        remedy = "give a checkpoint in the transformers layout"
        raise BadInput("the repository has no config.json", place=repo, remedy=remedy) from error
    except errors.HFValidationError as error:
        raise BadInput(f"not a repository id: {error}", place=repo, remedy="write OWNER/NAME") from error
    except (errors.LocalEntryNotFoundError, _transport_error(), OSError) as error:
        remedy = f"check the name and the network, {_LOCAL_REMEDY}"
        raise BadInput("the Hugging Face Hub cannot be reached for it", place=repo, remedy=remedy) from error
