"""Options that take several values at once, as in `--seeds 0 1 2`."""

import re
from typing import Any

from typer.core import TyperCommand

_MANY = {
    "--seeds": re.compile(r"\d+"),
    "--methods": re.compile(r"(?!glas$|camelyon16$)[a-z][a-z0-9]*([-_][a-z0-9]+)*"),
    "--kinds": re.compile(r"sem|eem"),
}


class ListCommand(TyperCommand):
    """Lets the list options of a command stand once before all their values; repeating them works as well."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Repeat the option before each further value."""
        return super().parse_args(ctx, spread(args))


def spread(args: list[str]) -> list[str]:
    """`--seeds 0 1 2` as `--seeds 0 --seeds 1 --seeds 2`; a value ends the list when it does not look like one."""
    result: list[str] = []
    option, taken = "", 0
    for arg in args:
        if arg in _MANY:
            option, taken = arg, 0
            result.append(arg)
        elif option and not arg.startswith("-") and (not taken or _MANY[option].fullmatch(arg)):
            result += [option, arg] if taken else [arg]
            taken += 1
        else:
            option = ""
            result.append(arg)
    return result
