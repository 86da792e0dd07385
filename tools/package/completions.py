"""Prints completions for bash and zsh, made from --help: python3 -m package.completions bash|zsh BINARY (PYTHONPATH=tools)."""
import sys

from package import help_text


def flags_of(command):
    return [name for option in command.options for name in option.names]


def bash_values(command):
    """Returns lines for a bash `case` statement on the word before the cursor: one line per flag that takes a value, which sets the completions of
    that value."""
    lines = []
    for option in command.options:
        if not option.value:
            continue
        if option.choices:
            action = f'values="{" ".join(option.choices)}"'
        else:
            action = f"files={'-d' if option.takes_folder else '-f'}" if option.is_path else "return"
        lines.append(f"        {' | '.join(option.names)}) {action} ;;")
    return lines


def bash_command(command):
    lines = [f'    "{" ".join(command.path)}")', f'      flags="{" ".join(flags_of(command))}"']
    if command.commands:
        lines.append(f'      words="{" ".join(each.path[-1] for each in command.commands)}"')
    elif any(each.is_path for each in command.positionals):
        lines.append(f"      files={'-d' if all(each.takes_folder for each in command.positionals) else '-f'}")
    values = bash_values(command)
    if values:
        lines += ['      case "$before" in', *values, "      esac"]
    return [*lines, "      ;;"]


def bash(root):
    paths = [command.path for command in root.walk() if command.path]
    lines = [
        "# Completion of the command quire for bash, made from its --help.",
        "_quire() {",
        '  local current="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD - 1]}" command="" word',
        '  local flags="" words="" values="" files=""',
        '  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do',
        '    case "$command/$word" in',
        *(f'      "{" ".join(path[:-1])}/{path[-1]}") command="{" ".join(path)}" ;;' for path in paths),
        "    esac",
        "  done",
        "  COMPREPLY=()",
        '  case "$command" in',
        *(line for command in root.walk() for line in bash_command(command)),
        "  esac",
        '  if [ -n "$values" ]; then COMPREPLY=($(compgen -W "$values" -- "$current")); return; fi',
        '  if [[ "$current" == -* ]]; then COMPREPLY=($(compgen -W "$flags" -- "$current")); return; fi',
        '  if [ -n "$words" ]; then COMPREPLY=($(compgen -W "$words" -- "$current")); return; fi',
        '  if [ -n "$files" ]; then',
        "    compopt -o filenames 2>/dev/null",
        "    mapfile -t COMPREPLY < <(compgen $files -- \"$current\")",
        "  fi",
        "}",
        "complete -F _quire quire",
    ]
    return "\n".join(lines) + "\n"


def zsh_text(text):
    """Escapes text for a single-quoted spec of _arguments, in which brackets and colons have a meaning."""
    for letter in "\\[]:":
        text = text.replace(letter, "\\" + letter)
    return text.replace("'", "'\\''")


def zsh_value(option):
    if not option.value:
        return ""
    if option.choices:
        return f":{zsh_text(option.value)}:({' '.join(option.choices)})"
    action = ("_files -/" if option.takes_folder else "_files") if option.is_path else " "
    return f":{zsh_text(option.value)}:{action}"


def zsh_specs(command):
    for option in command.options:
        for name in option.names:
            yield f"'{'*' if option.repeatable else ''}{name}[{zsh_text(option.text)}]{zsh_value(option)}'"
    for at, option in enumerate(command.positionals, 1):
        yield f"'{at}:{zsh_text(option.names[0])}:{'_files' if option.is_path else ' '}'"


def zsh_command(command):
    """Returns the function that completes one command. A command with subcommands calls their functions."""
    name = "_".join(("_quire", *command.path))
    lines = [f"{name}() {{"]
    if command.commands:
        lines += ["  local curcontext=\"$curcontext\" state line", "  _arguments -C \\"]
        lines += [f"    {spec} \\" for spec in zsh_specs(command)]
        lines += ["    '1: :->command' '*:: :->rest'", "  case $state in", "    command)", "      local -a commands=("]
        lines += [f"        '{each.path[-1]}:{zsh_text(each.text)}'" for each in command.commands]
        lines += ["      )", "      _describe command commands ;;", "    rest)", "      case $line[1] in"]
        lines += [f"        {each.path[-1]}) {'_'.join(('_quire', *each.path))} ;;" for each in command.commands]
        lines += ["      esac ;;", "  esac"]
    else:
        lines += ["  _arguments \\", *(f"    {spec} \\" for spec in zsh_specs(command))]
        lines[-1] = lines[-1].removesuffix(" \\")
    return [*lines, "}"]


def zsh(root):
    lines = ["#compdef quire", "# Completion of the command quire for zsh, made from its --help."]
    for command in root.walk():
        lines += zsh_command(command)
    return "\n".join([*lines, '_quire "$@"']) + "\n"


def main():
    shell, binary = sys.argv[1:3]
    sys.stdout.write({"bash": bash, "zsh": zsh}[shell](help_text.read(binary)))


if __name__ == "__main__":
    main()
