"""Scripts with which a shell completes a program's flags, their words and file names.

`nsq-tail --completion bash` prints the script; docs/tools/README.md says where to put it for each shell. The scripts
are static. click's own completion starts the program on every Tab (60 ms and more), needs every flag declared to click,
and does not know Go's flags with one dash.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nsqd_py.settings.declaration import Setting
    from nsqd_py.settings.program import Program

_FILE_ENDINGS = ("-file", "-dir", "-path", "-cert", "-key")
_FILE_NAMES = ("config", "check-data", "export-to-go", "backup-to", "restore-from")


def completion_script(program: Program[Any], shell: str) -> str:
    """Return the script for `bash`, `zsh` or `fish`."""
    return _SCRIPTS[shell](program)


def _takes_file(setting: Setting) -> bool:
    return setting.name in _FILE_NAMES or setting.name.endswith(_FILE_ENDINGS)


def _flags(settings: Iterable[Setting]) -> list[str]:
    """Return the flags. Those that need a value end with `=`, so that the value follows without a space."""
    return [f"--{setting.name}{'' if setting.kind.bare_value else '='}" for setting in settings]


def _function(program: Program[Any]) -> str:
    return "_" + program.command.replace("-", "_")


def _bash(program: Program[Any]) -> str:
    cases = "".join(
        f'        --{s.name}) COMPREPLY=($(compgen -W "{" ".join(s.kind.choices)}" -- "$word")); return ;;\n'
        for s in program.settings
        if s.kind.choices
    )
    name = _function(program)
    # bash splits words at `=`: the word at the cursor is the flag, `=`, or the value after it.
    return f"""\
{name}() {{
    local word="${{COMP_WORDS[COMP_CWORD]}}" flag="${{COMP_WORDS[COMP_CWORD-1]}}"
    if [[ "$word" == "=" ]]; then word=""
    elif [[ "$flag" == "=" ]]; then flag="${{COMP_WORDS[COMP_CWORD-2]}}"
    fi
    case "$flag" in
{cases}    esac
    if [[ "$word" == -* ]]; then
        COMPREPLY=($(compgen -W "{" ".join(_flags(program.settings))} --help" -- "$word"))
        [[ "${{COMPREPLY[0]}}" == *= ]] && compopt -o nospace
    else
        COMPREPLY=($(compgen -f -- "$word"))
    fi
}}
complete -o filenames -F {name} {program.command}
"""


def _zsh(program: Program[Any]) -> str:
    lines = "".join(f"    {_zsh_argument(setting)} \\\n" for setting in program.settings)
    lines += f"    '*:{program.argument.name}:_files' \\\n" if program.argument else ""
    return f"#compdef {program.command}\n_arguments \\\n{lines}    '--help[Show what the flags mean and exit.]'\n"


def _zsh_argument(setting: Setting) -> str:
    help_text = setting.full_help.replace("'", "'\\''")
    for special in "[]:":
        help_text = help_text.replace(special, f"\\{special}")
    if setting.kind.bare_value:
        return f"'*--{setting.name}[{help_text}]'"
    action = f"({' '.join(setting.kind.choices)})" if setting.kind.choices else "_files" if _takes_file(setting) else ""
    return f"'*--{setting.name}=[{help_text}]:{setting.kind.word.strip('. ')}:{action}'"


def _fish(program: Program[Any]) -> str:
    files = [] if program.argument else [f"complete -c {program.command} -f"]
    lines = [*files, *(_fish_line(program, s) for s in program.settings)]
    return "\n".join([*lines, f"complete -c {program.command} -l help -d 'Show what the flags mean and exit.'", ""])


def _fish_line(program: Program[Any], setting: Setting) -> str:
    help_text = setting.full_help.replace("\\", "\\\\").replace("'", "\\'")
    line = f"complete -c {program.command} -l {setting.name} -d '{help_text}'"
    if setting.kind.bare_value:
        return line
    if setting.kind.choices:
        return f"{line} -x -a '{' '.join(setting.kind.choices)}'"
    return f"{line} -r -F" if _takes_file(setting) else f"{line} -x"


_SCRIPTS = {"bash": _bash, "zsh": _zsh, "fish": _fish}
