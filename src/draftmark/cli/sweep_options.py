"""The options of `draftmark sweep`, as they are typed and explained; the command says only which it has."""

from pathlib import Path
from typing import Annotated, Literal

import typer

_MEASURE = "Measuring"
_PROMPTS = "Prompts"
_SERVER = "Server"

Url = Annotated[
    str | None,
    typer.Option(
        help="The server, as in http://127.0.0.1:8000. [required, save with --resume]",
        rich_help_panel=_SERVER,
        show_default=False,
    ),
]
Model = Annotated[str | None, typer.Option(help="One of the server's models.", rich_help_panel=_SERVER)]
Api = Annotated[
    Literal["auto", "completions", "chat"], typer.Option(help="Which API is used.", rich_help_panel=_SERVER)
]
ApiKey = Annotated[
    str | None, typer.Option(envvar="OPENAI_API_KEY", help="Sent as a bearer token.", rich_help_panel=_SERVER)
]
Insecure = Annotated[bool, typer.Option("--insecure", help="Do not check the certificate.", rich_help_panel=_SERVER)]

Depths = Annotated[str, typer.Option(help="Prompt tokens, increasing.", metavar="1k,2k,4k")]
Output = Annotated[str, typer.Option(help="Tokens of output a request.", metavar="TOKENS")]
Concurrency = Annotated[str, typer.Option(help="Requests at once; several are swept in turn.")]
Rate = Annotated[
    str | None, typer.Option(help="Requests a second that come whatever happens, instead.", metavar="0.5,1,2")
]
Requests = Annotated[int, typer.Option(min=1, help="Requests at each rate.")]
Mode = Annotated[
    Literal["cold", "warm"],
    typer.Option(help="cold: every prompt is new. warm: one prompt grows, and its prefix is reused."),
]
Log = Annotated[
    Path | None,
    typer.Option(help="The engine's log, to say why it died. Known where draftmark started it.", show_default=False),
]
Resume = Annotated[
    int | None,
    typer.Option(
        help="Go on with this run, with its server, depths and options unless given anew; what it finished is not"
        " measured again.",
        metavar="RUN",
    ),
]

Repeats = Annotated[int, typer.Option(min=1, help="Least repeats a depth.", rich_help_panel=_MEASURE)]
MaxRepeats = Annotated[
    int | None,
    typer.Option(
        min=1, help="Most repeats a depth: 10, or --repeats if more.", rich_help_panel=_MEASURE, show_default=False
    ),
]
Precision = Annotated[
    float,
    typer.Option(
        min=0.0, help="Repeat until the step time's interval is within this share of it.", rich_help_panel=_MEASURE
    ),
]
PointTime = Annotated[
    float, typer.Option(help="Seconds after which a depth is not repeated again.", rich_help_panel=_MEASURE)
]
Timeout = Annotated[
    float, typer.Option(help="Seconds the first depth's first token may take.", rich_help_panel=_MEASURE)
]
Stall = Annotated[float, typer.Option(help="Seconds that a stream may pause.", rich_help_panel=_MEASURE)]
WarmUp = Annotated[int, typer.Option(min=0, help="Requests before the first depth.", rich_help_panel=_MEASURE)]
Sanity = Annotated[
    bool, typer.Option("--sanity", help="Also ask for a planted fact at each depth.", rich_help_panel=_MEASURE)
]

Content = Annotated[Literal["code", "prose"], typer.Option(help="Of what ships with Python.", rich_help_panel=_PROMPTS)]
Texts = Annotated[
    list[Path] | None, typer.Option(help="Your own text instead; may be repeated.", rich_help_panel=_PROMPTS)
]
Tokenizer = Annotated[
    Path | None, typer.Option(help="tokenizer.json, for a server without /tokenize.", rich_help_panel=_PROMPTS)
]
Seed = Annotated[
    int | None,
    typer.Option(help="Drawn where not given, so that no run meets its own cache.", min=0, rich_help_panel=_PROMPTS),
]
