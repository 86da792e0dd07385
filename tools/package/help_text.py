"""Parses the output of `quire --help` and of the --help of every subcommand into values. The man page and the completions are made from
these values, so they contain exactly the existing flags. A line of unknown form is an error; no line is skipped."""
import dataclasses
import re
import subprocess

COLUMN = 30  # the column at which CLI11 prints descriptions
LEFT = re.compile(
    r"(?P<names>\S+)(?: (?P<value>(?!REQUIRED|\(Env:|Needs:|Excludes:)\S.*?))?"
    r"(?P<repeatable> \.\.\.)?(?P<required> REQUIRED)?(?: \(Env:(?P<env>\w+)\))?"
    r"(?: Needs: (?P<needs>[-\w ]+?))?(?: Excludes: [-\w ]+?)?"
)
CHOICES = re.compile(r"(?:.*:)?\{([^{}]+)\}")


class HelpError(Exception):
    """Raised for a line of --help that this file does not understand."""


@dataclasses.dataclass(frozen=True)
class Option:
    names: tuple  # "--port" for a flag, "model" for a positional
    value: str  # type of the value, such as "INT" or "bf16|f32"; empty for a switch
    default: str
    choices: tuple
    repeatable: bool
    required: bool
    env: str
    needs: tuple
    text: str

    @property
    def is_path(self):
        return any(word in self.value for word in ("PATH", "FILE", "DIR", "FOLDER", "MODEL"))

    @property
    def takes_folder(self):
        return "DIR" in self.value


@dataclasses.dataclass(frozen=True)
class Command:
    path: tuple  # ("cache", "ls"); empty: quire itself
    text: str
    positionals: tuple
    options: tuple
    commands: tuple
    footer: str

    def walk(self):
        yield self
        for command in self.commands:
            yield from command.walk()


def split_default(value):
    """Splits off the default: 'INT=8000' -> ('INT', '8000'). 'NAME=KEY' and 'NAME[,key=value...]' have no default."""
    depth = 0
    for at, letter in enumerate(value):
        depth += letter in "[{"
        depth -= letter in "]}"
        if letter == "=" and depth == 0 and not re.fullmatch(r"[A-Z]+", value[at + 1 :]):
            return value[:at], value[at + 1 :]
    return value, ""


def choices_of(value):
    listed = CHOICES.fullmatch(value)
    if listed:
        return tuple(listed[1].split(","))
    return tuple(value.split("|")) if re.fullmatch(r"[a-z0-9_]+(\|[a-z0-9_]+)+", value) else ()


def metavar(value, choices):
    """Returns the placeholder of a value. CLI11 joins the type and its checks with colons: 'INT:SIZE', 'DIR:DIR', 'INT:INT in [1 - 1024]'."""
    if choices:
        return "|".join(choices)
    parts = value.split(":")
    return parts[-1] if len(parts) > 1 and parts[-1] in ("SIZE", "DIR") else parts[0]


def parse_option(left, text):
    found = LEFT.fullmatch(left)
    if not found:
        raise HelpError(f"not understood: '{left}'")
    value, default = split_default(found["value"] or "")
    choices = choices_of(value)
    names = tuple(name.removesuffix("{false}") for name in found["names"].split(","))
    return Option(names=names, value=metavar(value, choices).removesuffix("..."), default=default, choices=choices,
                  repeatable=bool(found["repeatable"]), required=bool(found["required"]), env=found["env"] or "",
                  needs=tuple((found["needs"] or "").split()), text=text)


def entries(lines):
    """Yields (left column, description) of each entry. If the left column is too long, CLI11 puts the description on the next line."""
    at = 0
    while at < len(lines):
        if not re.match(r"  \S", lines[at]):
            raise HelpError(f"not understood: '{lines[at]}'")
        below = []
        while at + 1 + len(below) < len(lines) and lines[at + 1 + len(below)].startswith(" " * COLUMN):
            below.append(lines[at + 1 + len(below)].strip())
        has_own = not below or lines[at][COLUMN - 1 : COLUMN] == " " and lines[at][COLUMN - 2 : COLUMN] == "  "
        left, own = (lines[at][:COLUMN], lines[at][COLUMN:]) if has_own else (lines[at], "")
        yield left.strip(), " ".join([own.strip(), *below]).strip()
        at += 1 + len(below)


def sections(text):
    """Returns the lines under 'Positionals:', 'Subcommands:' and the groups of flags ('Options'), the lines before them (under ''), and the
    lines after them ('footer')."""
    found, name = {"": [], "footer": []}, ""
    lines = text.splitlines()
    for line, below in zip(lines, [*lines[1:], ""]):
        if line in ("Options:", "Positionals:", "Subcommands:") or line.endswith(":") and re.match(r"  -", below):
            name = line[:-1] if line in ("Positionals:", "Subcommands:") else "Options"
            found.setdefault(name, [])
        elif name and line and not line.startswith(" "):
            name = "footer"
            found[name].append(line)
        elif line or name == "footer":
            found[name].append(line)
    return found


def parse(path, text, ask):
    parts = sections(text)
    options = tuple(parse_option(left, description) for left, description in entries(parts.get("Options", [])))
    positionals = tuple(parse_option(left, description) for left, description in entries(parts.get("Positionals", [])))
    commands = tuple(parse((*path, name), ask((*path, name)), ask) for name, _ in entries(parts.get("Subcommands", [])))
    about = " ".join(line for line in parts[""] if not line.startswith("Usage:"))
    return Command(path, about, positionals, options, commands, "\n".join(parts["footer"]).strip())


def read(binary):
    """Returns the command tree of a `quire` binary."""

    def ask(path):
        return subprocess.run([str(binary), *path, "--help"], check=True, capture_output=True, text=True, timeout=60).stdout

    return parse((), ask(()), ask)
