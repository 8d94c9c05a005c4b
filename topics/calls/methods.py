"""What makes methods of calls, and what blocking and awaiting stores have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import update_wrapper
from inspect import Parameter, signature
from types import FunctionType, GenericAlias, NoneType
from typing import Any, NoReturn, TypeVar, cast, get_args

from topics.kernel.limits import Limits

C = TypeVar("C", bound=type[Any])
F = TypeVar("F", bound=Callable[..., Any])


class Located:
    """`where`: a directory or a URL.

    `limits`: of an embedded store what it takes; of a client what its server is taken to allow in a page or a batch.
    `is_remote`: whether another process has them, which may end and come back.
    """

    where: str
    limits: Limits
    is_remote: bool

    def __reduce__(self) -> NoReturn:
        """No copies, and no way into another process."""
        raise TypeError(
            f"{self!r} belongs to the process that opened it: open another one where it is needed"
        )

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.where!r})"


def described(
    method: F,
    call: Callable[..., Any],
    *,
    is_of_handle: bool = False,
    stream: type | None = None,
    gives: object = None,
    defaults: Mapping[str, Any] | None = None,
) -> F:
    """With the docstring and the parameters of the call, and what it answers; of a `stream`, what each item is.
    `is_of_handle`: its first parameter is the object. `defaults`: other ones than the call has.
    """
    shape = signature(call)
    parameters = [
        one.replace(default=defaults[one.name]) if defaults and one.name in defaults else one
        for one in list(shape.parameters.values())[1 if is_of_handle else 0 :]
    ]
    if gives is None:
        kinds = [one for base in getattr(call, "__orig_bases__", ()) for one in get_args(base)]
        # of a function it is text: "Generator[Call[Any], Any, TopicConfig]"
        gives = kinds[0] if kinds else str(shape.return_annotation).partition(", Any, ")[2].removesuffix("]")
    update_wrapper(method, call, updated=())
    answer = None if gives is NoneType else gives if stream is None else GenericAlias(stream, (gives,))
    vars(method)["__signature__"] = shape.replace(
        parameters=[Parameter("self", Parameter.POSITIONAL_OR_KEYWORD), *parameters], return_annotation=answer
    )
    # What `typing.get_type_hints` reads. Those of the call would say that a generator of steps is returned.
    cast("FunctionType", method).__annotations__ = {one.name: one.annotation for one in parameters} | {
        "return": answer
    }
    return method


def with_call_names(owner: C) -> C:
    """A class whose methods are called what they are called there."""
    for name, found in vars(owner).items():
        if isinstance(found, FunctionType):
            found.__name__, found.__qualname__ = name, f"{owner.__name__}.{name}"
    return owner
