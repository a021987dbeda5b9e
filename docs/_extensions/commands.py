"""The command line as Markdown, a section per command, made of the app that runs; and its exit codes."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

HEAD = """\
# Command line

Results go to stdout, progress and messages to stderr; every listing has `--json`. `labkit COMMAND --help`
prints what is below. Completion for bash, zsh and fish: `labkit --install-completion`.
"""


def commands_page() -> str:
    """Every command of the app, groups after plain commands."""
    from typer.main import get_command

    from labkit.cli.app import app

    return "\n".join([HEAD, *_sections(get_command(app), "labkit")])


def exit_codes() -> str:
    """The table of exit codes that `labkit.cli.main` documents."""
    from labkit.cli import main

    doc = inspect.getdoc(main) or ""
    return "\n".join(line for line in doc.splitlines() if line.startswith("|"))


def _sections(command: Any, path: str) -> Iterator[str]:
    """A group is gone through by its commands; a command is a section."""
    members = getattr(command, "commands", None)
    if members is None:
        yield from _section(command, path)
        return
    for name in sorted(members, key=lambda name: hasattr(members[name], "commands")):
        if not members[name].hidden:
            yield from _sections(members[name], f"{path} {name}")


def _section(command: Any, path: str) -> Iterator[str]:
    context = command.make_context(path, [], resilient_parsing=True)
    shown = [p for p in command.params if not getattr(p, "hidden", False)]
    arguments = [p.name.upper() for p in shown if p.param_type_name == "argument"]
    options = ["[OPTIONS]"] if len(arguments) < len(shown) else []
    yield f"## {path}\n"
    yield f"```\n{' '.join([path, *arguments, *options])}\n```\n"
    yield _prose(command.help or "")
    rows = [f"| `{name}` | {_cell(text)} |" for name, text in (p.get_help_record(context) for p in shown)]
    if rows:
        yield "| | |\n|---|---|"
        yield "\n".join(rows) + "\n"


def _prose(text: str) -> str:
    return inspect.cleandoc(text).replace("<", "&lt;") + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
