"""Bash's side: its words end at `=` and `:`, ours do not.

So bash hands over the line up to the cursor, and gets of each completion what stands behind the last such sign.
"""

from __future__ import annotations

import os
from typing import Any, ClassVar, Final

from click.shell_completion import BashComplete, CompletionItem, add_completion_class
from click.shell_completion import split_arg_string as words_of

_SOURCE: Final = """\
%(complete_func)s() {
    local response kind value
    response=$(env COMP_LINE="${COMP_LINE:0:$COMP_POINT}" COMP_WORDBREAKS="$COMP_WORDBREAKS" \\
        %(complete_var)s=bash_complete "$1" 2>/dev/null)
    COMPREPLY=()
    while IFS=, read -r kind value; do
        case $kind in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain)
                COMPREPLY+=("$value")
                [[ $value == *= ]] && compopt -o nospace
                ;;
        esac
    done <<<"$response"
    return 0
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""


@add_completion_class
class Bash(BashComplete):
    source_template: ClassVar[str] = _SOURCE

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._behind = 0

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ["COMP_LINE"]
        words = words_of(line)
        incomplete = words.pop() if words and not line[-1].isspace() else ""
        breaks = set(os.environ.get("COMP_WORDBREAKS", "=:")) & set("=:")
        self._behind = max((incomplete.rfind(sign) + 1 for sign in breaks), default=0)
        return words[1:], incomplete

    def format_completion(self, item: CompletionItem[str]) -> str:
        value = item.value
        if item.type == "plain":
            value = value[self._behind :].replace(">", r"\>")
        return f"{item.type},{value}"
