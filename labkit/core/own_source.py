"""Own source: the text of a class of one's own and of what it reaches in places that nothing can import.

Knows functions, classes and constants of a notebook or a script; runs nothing of them.
"""

from __future__ import annotations

import ast
import contextlib
import dis
import inspect
import linecache
import sys
import textwrap
from collections.abc import Iterator
from types import CodeType, FunctionType, ModuleType
from typing import Any

from labkit.core.importable import importable

_CONSTANT = (bool, int, float, str, bytes, type(None))


def own_source(kind: type) -> str:
    """The class first, then every class, function and constant that it reaches, in the order of their use.

    What lies in a module that can be imported stays out, since an import names it. Empty where the class
    itself has no text, as one made by `type(...)` or typed at a bare prompt.
    """
    first = class_source(kind)
    parts, seen, waiting = [first], {id(kind)}, list(_reached(kind))
    while waiting and first:
        name, value = waiting.pop(0)
        if id(value) in seen or _elsewhere(value):
            continue
        seen.add(id(value))
        parts.append(_text(name, value))
        waiting += _reached(value)
    return "\n\n".join(part.strip("\n") for part in parts) + "\n" if first else ""


def class_source(kind: type) -> str:
    """The text of one class, decorators included; empty where there is none.

    `inspect.getsource` finds no class of a notebook before Python 3.13, but it finds the functions in it.
    """
    for text, line in _texts(kind):
        found = [node for node in _classes(text, kind.__qualname__) if line is None or _holds(node, line)]
        if found:
            node = found[-1]
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            return textwrap.dedent("".join(text.splitlines(keepends=True)[first - 1 : node.end_lineno]))
    return ""


def _texts(kind: type) -> Iterator[tuple[str, int | None]]:
    """Texts that may hold the class, and a line within it where that is known; the likeliest first."""
    for function in _functions(kind):
        code = function.__code__
        yield _file(code.co_filename), code.co_firstlineno
    with contextlib.suppress(TypeError, OSError):  # a class of __main__ without a file
        yield _file(inspect.getsourcefile(kind) or ""), None
    if kind.__module__ == "__main__":
        # What IPython ran, the latest last: a cell that runs again has the file name that it had.
        yield from ((cell, None) for cell in reversed(getattr(sys.modules["__main__"], "In", ())))
        yield from ((_file(name), None) for name in reversed(list(linecache.cache)))


def _file(name: str) -> str:
    """The text of a file as it is now, or of a cell."""
    linecache.checkcache(name)
    return "".join(linecache.getlines(name))


def _classes(text: str, qualname: str) -> Iterator[ast.ClassDef]:
    """The classes of this qualified name in a text, in its order."""
    try:
        waiting = [(node, "") for node in ast.parse(text).body]
    except (SyntaxError, ValueError):
        return
    while waiting:
        node, above = waiting.pop(0)
        own = above
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            own = f"{above}{node.name}." + ("" if isinstance(node, ast.ClassDef) else "<locals>.")
            if isinstance(node, ast.ClassDef) and own == f"{qualname}.":
                yield node
        waiting += [(child, own) for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]


def _holds(node: ast.ClassDef, line: int) -> bool:
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _functions(value: Any) -> Iterator[FunctionType]:
    """The functions of a class, or the function that the value is."""
    for member in vars(value).values() if isinstance(value, type) else (value,):
        if isinstance(member, property):
            yield from (part for part in (member.fget, member.fset) if isinstance(part, FunctionType))
            continue
        plain = inspect.unwrap(getattr(member, "__func__", member)) if callable(member) else None
        if isinstance(plain, FunctionType) and plain.__code__.co_filename != "<string>":
            yield plain


def _reached(value: Any) -> Iterator[tuple[str, Any]]:
    """Names and values that a class or function gets from around it."""
    if isinstance(value, type):
        yield from ((base.__name__, base) for base in value.__bases__)
        yield from ((n, v) for n, v in vars(value).items() if isinstance(v, type))
        around = vars(sys.modules.get(value.__module__, object))
        around = next((function.__globals__ for function in _functions(value)), around)
        yield from ((n, around[n]) for n in _body_names(class_source(value)) if n in around)
    for function in _functions(value):
        yield from (
            (n, function.__globals__[n]) for n in _names(function.__code__) if n in function.__globals__
        )
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        yield from ((name, cell.cell_contents) for name, cell in cells if name != "__class__")


def _names(code: CodeType) -> dict[str, None]:
    """Global names that a code loads, in order, those of the functions inside it too."""
    found = {i.argval: None for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            found |= _names(inner)
    return found


def _body_names(text: str) -> dict[str, None]:
    """Names that the body of a class loads while the class is made, in order; its functions' are theirs."""
    found, waiting = dict[str, None](), list[ast.AST](ast.parse(text).body)
    while waiting:
        node = waiting.pop(0)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            args = node.args
            made = (*args.defaults, *filter(None, args.kw_defaults))
            waiting += [*getattr(node, "decorator_list", ()), *made]
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            found[node.id] = None
        waiting += ast.iter_child_nodes(node)
    return found


def _elsewhere(value: Any) -> bool:
    """Whether an import names it."""
    defined = isinstance(value, type | FunctionType)
    return isinstance(value, ModuleType) or (defined and importable(value)) or inspect.isbuiltin(value)


def _text(name: str, value: Any) -> str:
    if isinstance(value, type):
        return class_source(value) or f"# {name}: a class without a text"
    if isinstance(value, FunctionType):
        try:
            return textwrap.dedent(inspect.getsource(value))
        except (OSError, TypeError):
            return f"# {name}: a function without a text"
    simple = isinstance(value, _CONSTANT) or (
        isinstance(value, tuple | list | frozenset) and all(isinstance(item, _CONSTANT) for item in value)
    )
    return f"{name} = {value!r}" if simple else f"# {name}: an object of {type(value).__qualname__}"
