"""Prints the man page quire(1), made from --help: python3 -m package.man_page BINARY (PYTHONPATH=tools)."""
import subprocess
import sys

from package import help_text

FILES = (
    ("/etc/default/quire", "The model, the flags and the keys of the service quire.service (Debian package)."),
    ("/var/lib/quire", "The folder that the service may write to, for --kv-disk."),
)


def escaped(text):
    text = text.replace("\\", "\\(rs").replace("-", "\\-").replace("'", "\\(aq").replace("`", "\\(ga").replace("^", "\\(ha").replace("~", "\\(ti")
    return "\n".join("\\&" + line if line.startswith(".") else line for line in text.split("\n"))


def option_lines(option):
    names = ", ".join(f"\\fB{escaped(name)}\\fR" if name.startswith("-") else f"\\fI{escaped(name)}\\fR" for name in option.names)
    value = f" \\fI{escaped(option.value)}\\fR" if option.value and option.names[0].startswith("-") else ""
    notes = []
    if option.default:
        notes.append(f"Default: {option.default}.")
    if option.env:
        notes.append(f"Also from the environment variable {option.env}.")
    if option.needs:
        notes.append(f"Needs {', '.join(option.needs)}.")
    text = option.text if not notes or option.text.endswith((".", ")")) else option.text + "."
    return [".TP", names + value + (" ..." if option.repeatable and option.value else ""), escaped(" ".join([text, *notes]))]


def usage(command):
    words = ["\\fB" + escaped(" ".join(("quire", *command.path))) + "\\fR"]
    words += [f"\\fI{escaped(each.names[0])}\\fR" if each.required else f"[\\fI{escaped(each.names[0])}\\fR]" for each in command.positionals]
    return " ".join([*words, "[\\fIOPTIONS\\fR]"])


def command_lines(command):
    lines = [f".SS {usage(command)}", escaped(command.text) + "."]
    for option in (*command.positionals, *command.options):
        lines += option_lines(option)
    return lines


def footers(root):
    """Returns each footer once, because CLI11 repeats a command's footer in its subcommands."""
    seen = []
    for command in root.walk():
        if command.footer and command.footer not in seen:
            seen.append(command.footer)
    return seen


def page(root, version):
    leaves = [command for command in root.walk() if command.path and not command.commands]
    lines = [f'.TH QUIRE 1 "" "quire {version}" "User Commands"', ".SH NAME", "quire \\- serve large language models and their KV cache"]
    lines.append(".SH SYNOPSIS")
    for command in leaves:
        lines += [usage(command), ".br"]
    lines += ["\\fBquire \\-\\-version\\fR", ".SH DESCRIPTION", escaped(root.text), ".SH COMMANDS"]
    for command in leaves:
        lines += command_lines(command)
    lines.append(".SH OPTIONS")
    for option in root.options:
        lines += option_lines(option)
    environment = {option.env: option for command in leaves for option in command.options if option.env}
    lines.append(".SH ENVIRONMENT")
    for name, option in sorted(environment.items()):
        lines += [".TP", f"\\fB{escaped(name)}\\fR", escaped(f"Like {option.names[0]}, but other users of this machine cannot read it.")]
    lines.append(".SH FILES")
    for name, text in FILES:
        lines += [".TP", f"\\fI{escaped(name)}\\fR", escaped(text)]
    lines += [".SH EXIT STATUS", escaped("0: done. 2: bad input, with a line on stderr that says what to do. 1: quire cache verify found a corrupted "
                                         "block."), ".SH EXAMPLES"]
    for footer in footers(root):
        lines += [".nf", escaped(footer), ".fi", ".PP"]
    return "\n".join(lines) + "\n"


def main():
    binary = sys.argv[1]
    version = subprocess.run([binary, "--version"], check=True, capture_output=True, text=True).stdout.split()[1]
    sys.stdout.write(page(help_text.read(binary), version))


if __name__ == "__main__":
    main()
