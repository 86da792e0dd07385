"""Makes the site's page of `quire COMMAND --help`. hooks.py calls this while the site is built. Without a built `quire`, the page says that
it is missing."""
from package import help_text

URI = "reference/commands.md"
HEAD = ["# Commands and flags", ""]
WITHOUT = [*HEAD, "This site was built without `quire`. `quire --help` lists the commands, `quire COMMAND --help` the flags of each; "
           "[Options of the core and the server](../options.md) lists their options."]


def cell(text):
    return text.replace("|", "&#124;").replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")


def rows(options):
    for option in options:
        names = ", ".join(f"`{name}`" for name in option.names if name != "-h")
        value = f" `{option.value}`".replace("|", "&#124;") if option.value else ""
        more = [f"default `{option.default}`"] if option.default else []
        more += ["may be given several times"] if option.repeatable else []
        more += [f"or `{option.env}` in the environment"] if option.env else []
        more += [f"with `{need}`" for need in option.needs]
        yield f"| {names}{value} | {cell(option.text)}{' (' + '; '.join(more) + ')' if more else ''} |"


def page(binary):
    if binary is None:
        return "\n".join(WITHOUT)
    root = help_text.read(binary)
    out = [*HEAD, "The help texts of the commands (`quire COMMAND --help`).", "", "| | |", "|---|---|"]
    out += [f"| [`quire {' '.join(c.path)}`](#quire-{'-'.join(c.path)}) | {cell(c.text)} |" for c in root.walk() if c.path]
    for command in root.walk():
        if not command.path:
            continue
        words = " ".join(f"{p.names[0].upper()}" if p.required else f"[{p.names[0].upper()}]" for p in command.positionals)
        name = " ".join(("quire", *command.path))
        out += ["", f"{'#' * (1 + len(command.path))} `{name}` {{#{name.replace(' ', '-')}}}", "", f"{cell(command.text)}.".replace("..", "."), "",
                "```sh", f"{name} {words} [FLAGS]".replace("  ", " "), "```", ""]
        listed = [*command.positionals, *(o for o in command.options if "--help" not in o.names)]
        if listed:
            out += ["| | |", "|---|---|", *rows(listed)]
    return "\n".join(out)
