"""The shells' side. Behind `NAME=` no blank is set, for a value follows.

Bash's words end at `=` and `:`, unless they are quoted; ours do not. So it hands over the line up to the cursor and the
word of its own that is replaced, and gets of each completion what stands from there on.
"""

from __future__ import annotations

import os
from typing import Any, ClassVar, Final

from click.shell_completion import BashComplete, CompletionItem, ZshComplete, add_completion_class
from click.shell_completion import split_arg_string as words_of

_SOURCE: Final = """\
%(complete_func)s() {
    local response kind value
    response=$(env COMP_LINE="${COMP_LINE:0:$COMP_POINT}" COMP_WORD="$2" \\
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
_ZSH_ADDS: Final = "compadd -U -V unsorted -a completions"
_ZSH_ADDS_PAIRS: Final = """\
compadd -U -V unsorted -S '' -- ${(M)completions:#*=}
        compadd -U -V unsorted -- ${completions:#*=}"""


@add_completion_class
class Zsh(ZshComplete):
    source_template: ClassVar[str] = ZshComplete.source_template.replace(_ZSH_ADDS, _ZSH_ADDS_PAIRS)


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
        replaced = os.environ["COMP_WORD"].replace("\\", "")  # that keeps a sign from ending a word
        self._behind = max(len(incomplete) - len(replaced), 0)
        return words[1:], incomplete

    def format_completion(self, item: CompletionItem[str]) -> str:
        value = item.value
        if item.type == "plain":
            value = value[self._behind :].replace(">", r"\>")
        return f"{item.type},{value}"
