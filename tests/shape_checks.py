"""Shapes checked at every call: what jaxtyping's import hook decorates each function and dataclass with in the tests.

jaxtyping's own decorator binds the signature at every call and checks arguments twice, those of functions without
shapes, too, which takes longer than most of what is called. Here beartype checks each argument and each result once,
and only functions with shapes get sizes of axes of their own.
"""

from collections.abc import Callable
from dataclasses import is_dataclass
from functools import partial, wraps
from inspect import isgeneratorfunction
from types import SimpleNamespace
from typing import Any, get_args, get_type_hints

from jaxtyping import AbstractArray, jaxtyped

Check = Callable[[Any], Any]


def checked(given: Any = None, *, typechecker: Check) -> Any:
    """As `jaxtyping.jaxtyped`, in whose place it is called: a decorator of functions and of classes."""
    if given is None:
        return partial(checked, typechecker=typechecker)
    if not isinstance(given, type):
        return _function(given, typechecker)
    if is_dataclass(given) and "__init__" in vars(given):  # else it is that of a class above
        given.__init__ = _function(given.__init__, typechecker)  # type: ignore[misc]
    return given


def _function(function: Callable[..., Any], typechecker: Check) -> Callable[..., Any]:
    if isgeneratorfunction(function):  # beartype would check when it is gone through, among the sizes of others
        return jaxtyped(function, typechecker=typechecker)
    written = function.__annotations__
    function.__annotations__ = {name: _read(hint, function.__globals__) for name, hint in written.items()}
    inner = typechecker(function)
    has_shapes = any(_has_shapes(hint) for hint in function.__annotations__.values())
    function.__annotations__ = inner.__annotations__ = written
    if not has_shapes:
        return inner  # type: ignore[no-any-return]

    @wraps(function)
    def outer(*arguments: Any, **named: Any) -> Any:
        with jaxtyped("context"):
            return inner(*arguments, **named)

    return outer


def _read(hint: Any, names: dict[str, Any]) -> Any:
    """A hint that is a text, or has one in it, as what it means; Any, as jaxtyping has it, if that is not there yet."""
    try:
        return get_type_hints(SimpleNamespace(__annotations__={"hint": hint}), names, include_extras=True)["hint"]
    except (NameError, TypeError):
        return Any


def _has_shapes(hint: Any) -> bool:
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        return True
    return any(_has_shapes(each) for each in (hint if isinstance(hint, list) else get_args(hint)))
