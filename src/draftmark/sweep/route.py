"""The two APIs that generate, and how each takes a prompt."""

from typing import Final, Literal

Route = Literal["/v1/completions", "/v1/chat/completions"]
COMPLETIONS: Final[Route] = "/v1/completions"
CHAT: Final[Route] = "/v1/chat/completions"


def prompt_fields(route: Route, prompt: str | tuple[int, ...]) -> dict[str, object]:
    """The prompt as the route's request has it: token ids on completions alone."""
    if route == COMPLETIONS:
        return {"prompt": prompt}
    return {"messages": [{"role": "user", "content": prompt}]}
