"""Makes one page of the site per public header, from doxygen's XML (Doxyfile, doxygen_filter.py). hooks.py calls this while the site is
built."""
import html
import pathlib
import re
import xml.etree.ElementTree as ElementTree

ROOT = "reference/cpp/"
TITLES = {"struct": "struct", "class": "class", "union": "union"}
# The headers that a new reader needs first. All other headers follow in alphabetical order.
GROUPS = {
    "The engine in a program": ("engine_builder.h", "engine.h", "options.h", "sampling.h", "request.h", "structured_output.h", "pooling.h",
                                "model_info.h", "server.h", "server_options.h", "local_api.h"),
    "Text": ("text/tokenizer.h", "text/detokenizer.h", "text/chat_template.h", "text/generation_config.h", "text/utf8_repair.h"),
    "The core, stepped by its host": ("core.h", "core_config.h", "plan.h", "ids.h", "error.h", "kv_spec.h", "kv_layout.h", "multimodal.h", "kv_stats.h"),
    "Seams": ("connector.h", "connector_registry.h", "transfer.h", "transport.h", "offload.h", "offload_manager.h", "eviction_policy.h",
              "hash_function.h", "hash_algorithm.h", "clock.h", "logger.h"),
    "What happened, and why": ("events.h", "lab/explain.h", "lab/curve.h", "watch.h", "kv_events.h", "step_trace.h", "journal.h",
                               "saved_journal.h", "core_call.h", "core_calls.h", "seam_record.h", "simulation.h", "cache_folder.h"),
}


def joined(node):
    """Returns the text of a comment as Markdown. Adds no backticks."""
    if node is None:
        return ""
    blocks = []
    for part in node:
        if part.tag == "para":
            blocks.append(paragraph(part))
    return "\n\n".join(block for block in blocks if block)


def paragraph(node):
    out = [escaped(node.text or "")]
    for part in node:
        if part.tag in ("itemizedlist", "orderedlist"):
            items = [" ".join(paragraph(para) for para in item.iter("para")) for item in part.iter("listitem")]
            out.append("\n\n" + "\n".join(f"- {item}" for item in items) + "\n\n")
        elif part.tag == "linebreak":
            out.append(" ")
        else:
            out.append(escaped("".join(part.itertext())))
        out.append(escaped(part.tail or ""))
    return "".join(out).strip()


def escaped(text):
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else re.sub(r"([\\*_<\[\]#|])", r"\\\1", part) for part in parts)


def comment(node):
    texts = [joined(node.find("briefdescription")), joined(node.find("detaileddescription"))]
    return "\n\n".join(text for text in texts if text)


def in_cell(text):
    return re.sub(r"\s*\n\s*", " ", text)


def code_text(node):
    return re.sub(r"\s+", " ", "".join(node.itertext())).strip() if node is not None else ""


def tidy(code):
    code = re.sub(r"< ", "<", re.sub(r" >", ">", code))
    return re.sub(r" ([&*])(?=[\w,)]|$)", r"\1 ", code).replace("& )", "&)").strip()


class CppPages:
    def __init__(self, folder):
        self.compounds, self.members, self.files, self.places = {}, {}, {}, {}
        for path in sorted(pathlib.Path(folder).glob("*.xml")):
            if path.name in ("index.xml", "Doxyfile.xml"):
                continue
            for compound in ElementTree.parse(path).getroot().iter("compounddef"):
                self.add(compound)
        for compound in self.compounds.values():
            self.place(compound)

    def add(self, compound):
        kind, where = compound.get("kind"), compound.find("location")
        if kind == "file":
            self.files[where.get("file").removeprefix("quire/")] = compound
        elif kind in TITLES and "<" not in compound.findtext("compoundname"):
            self.compounds[compound.get("id")] = compound
        if kind in ("namespace", "file"):
            for member in compound.iter("memberdef"):
                if member.get("prot") != "private" and member.find("location") is not None:
                    self.members[member.get("id")] = member

    def place(self, compound):
        """Adds targets of links: by doxygen's id, and by the names that comments and pages use."""
        name = self.name_of(compound)
        page = self.page_of(compound)
        self.places[name] = (page, name.replace("::", "-"))
        for member in self.visible(compound):
            self.places.setdefault(f"{name}::{member.findtext('name')}", (page, f"{name}-{member.findtext('name')}".replace("::", "-")))

    def all_places(self):
        for member in self.free():
            page, name = self.page_of(member), member.findtext("name")
            self.places.setdefault(name, (page, name))
            if member.get("kind") == "enum":
                for value in member.iter("enumvalue"):
                    self.places.setdefault(f"{name}::{value.findtext('name')}", (page, name))
        for compound in self.compounds.values():
            for member in self.visible(compound):
                if member.get("kind") == "enum":
                    name = f"{self.name_of(compound)}::{member.findtext('name')}"
                    for value in member.iter("enumvalue"):
                        self.places.setdefault(f"{name}::{value.findtext('name')}", self.places[name])
        return self.places

    @staticmethod
    def name_of(compound):
        return compound.findtext("compoundname").removeprefix("quire::")

    @staticmethod
    def page_of(node):
        return node.find("location").get("file").removeprefix("quire/").removesuffix(".h")

    @staticmethod
    def visible(compound):
        for section in compound.iter("sectiondef"):
            for member in section.iter("memberdef"):
                if member.get("prot") in ("public", "protected") and not member.findtext("name").startswith("~") and member.get("kind") != "friend":
                    yield member

    def free(self):
        return [m for m in self.members.values() if m.get("kind") in ("function", "typedef", "enum", "define", "variable")]

    def of_file(self, header):
        """Returns the types and functions of a header, in its order. Nested types follow the type that contains them."""
        page = header.removesuffix(".h")
        things = [node for node in [*self.compounds.values(), *self.free()] if self.page_of(node) == page]
        return sorted(things, key=lambda node: int(node.find("location").get("line")))

    def link(self, name, page, text):
        there, anchor = self.places[name]
        up = "../" * page.count("/")
        return f'<a href="{"" if there == page else up + there + ".html"}#{anchor}">{text}</a>'

    def linked(self, code, page):
        """Returns the code as HTML, in which names from the headers are links."""
        def word(match):
            return self.link(match[0], page, match[0]) if match[0] in self.places else match[0]
        text = re.sub(r"\b[A-Z]\w+(?:::\w+)*\b", word, html.escape(tidy(code), quote=False))
        text = re.sub(r"(&lt;|, )(?!/)", r"\1<wbr>", text)
        return "<code>" + text.replace("|", "&#124;") + "</code>"

    # -- pages

    def pages(self):
        self.all_places()
        yield ROOT + "index.md", self.index()
        for header in sorted(self.files):
            if self.of_file(header):
                yield f"{ROOT}{header.removesuffix('.h')}.md", self.page(header)

    def nav(self):
        groups = [{title: [{f"quire/{header}": f"{ROOT}{header.removesuffix('.h')}.md"} for header in rows]} for title, rows in self.groups()]
        return [ROOT + "index.md", *groups]

    def groups(self):
        named = {header for group in GROUPS.values() for header in group}
        for title, headers in {**GROUPS, "Further": tuple(sorted(set(self.files) - named))}.items():
            rows = [header for header in headers if header in self.files and self.of_file(header)]
            if rows:
                yield title, rows

    def index(self):
        out = ["# C++ headers", "", "Contracts: return values, ownership, threads and units. [Embedding quire](../../embedding.md) "
               "says how a program uses them, with examples that the tests compile.", ""]
        for title, rows in self.groups():
            out += [f"## {title}", "", "| header | |", "|---|---|"]
            for header in rows:
                first = in_cell(joined(self.files[header].find("detaileddescription")).split("\n\n")[0]) or in_cell(comment(self.files[header]))
                out.append(f"| [`quire/{header}`]({header.removesuffix('.h')}.md) | {first_sentences(first)} |")
            out.append("")
        return "\n".join(out)

    def page(self, header):
        page = header.removesuffix(".h")
        out = [f"# quire/{header}", "", "```cpp", f'#include "quire/{header}"', "```", "", comment(self.files[header]), ""]
        for node in self.of_file(header):
            out += self.compound(node, page) if node.tag == "compounddef" else self.member(node, page, "##", "")
        return "\n".join(out)

    def compound(self, node, page):
        name = self.name_of(node)
        bases = [tidy(base.text) for base in node.iter("basecompoundref") if base.get("prot") == "public"]
        out = [f"## {node.get('kind')} `{name}` {{#{name.replace('::', '-')}}}", ""]
        if bases:
            out += ["Is a " + ", ".join(self.linked(base.removeprefix("quire::"), page) for base in bases) + ".", ""]
        out += [comment(node), ""]
        members = sorted(self.visible(node), key=lambda member: int(member.find("location").get("line")))
        fields = [member for member in members if member.get("kind") == "variable"]
        for member in members:
            if member.get("kind") in ("enum", "typedef"):
                out += self.member(member, page, "###", name)
        if fields:
            out += ["| field | type | |", "|---|---|---|"]
            for field in fields:
                start = tidy(code_text(field.find("initializer"))).removeprefix("=").strip()
                starts = f"Default: <code>{html.escape(start, quote=False)}</code>. ".replace("|", "&#124;") if start and start != "{}" else ""
                anchor = f"{name}-{field.findtext('name')}".replace("::", "-")
                kind = self.linked(code_text(field.find("type")) + (field.findtext("argsstring") or ""), page)
                out.append(f'| <a id="{anchor}"></a>`{field.findtext("name")}` | {kind} | {starts}{in_cell(comment(field))} |')
            out.append("")
        for member in members:
            if member.get("kind") == "function" and member.findtext("argsstring", "").replace(" ", "").endswith("=delete") is False:
                out += self.member(member, page, "###", name)
        return out

    def member(self, node, page, level, owner):
        name = node.findtext("name")
        full = f"{owner}::{name}" if owner else name
        there = self.places.get(full, (page, full))[1]
        anchor = f" {{#{there}}}" if self.first(full, node) else ""
        if node.get("kind") == "enum":
            out = [f"{level} enum `{full}`{anchor}", "", comment(node), "", "| value | |", "|---|---|"]
            for value in node.iter("enumvalue"):
                start = code_text(value.find("initializer"))
                out.append(f"| `{value.findtext('name')}{' ' + start if start else ''}` | {in_cell(comment(value))} |")
            return [*out, ""]
        if node.get("kind") == "typedef":
            return [f"{level} using `{full}`{anchor}", "", self.code(f"using {name} = {tidy(code_text(node.find('type')))};"), "", comment(node), ""]
        if node.get("kind") == "define":
            names = ", ".join(param.findtext("defname") for param in node.findall("param"))
            return [f"{level} macro `{name}`{anchor}", "", self.code(f"#define {name}" + (f"({names})" if names else "")), "", comment(node), ""]
        if node.get("kind") == "variable":
            return [f"{level} `{full}`{anchor}", "", self.code(f"{tidy(node.findtext('definition'))} {code_text(node.find('initializer'))};"), "",
                    comment(node), ""]
        mark = "()" if node.get("kind") == "function" else ""
        return [f"{level} `{full}{mark}`{anchor}", "", self.code(self.signature(node)), "", comment(node), ""]

    def first(self, full, node):
        """Returns whether this is the first of several overloads, which has the anchor."""
        seen = self.__dict__.setdefault("anchored", {})
        return seen.setdefault(full, node.get("id")) == node.get("id")

    @staticmethod
    def code(text):
        return f"```cpp\n{text}\n```"

    @staticmethod
    def signature(node):
        made = " ".join(word for word, there in (("static", node.get("static") == "yes"), ("virtual", node.get("virt") in ("virtual", "pure-virtual")),
                                                   ("explicit", node.get("explicit") == "yes")) if there)
        params = [tidy(code_text(p.find("type"))) + (f" {p.findtext('declname')}" if p.findtext("declname") else "") +
                  (p.findtext("array") or "") + (f" = {tidy(code_text(p.find('defval')))}" if p.find("defval") is not None else "")
                  for p in node.findall("param")]
        params = [re.sub(r"([&*]) (?=\w+$)", r"\1 ", param).replace("&  ", "& ") for param in params]
        template = node.find("templateparamlist")
        head = ""
        if template is not None:
            head = "template <" + ", ".join(code_text(p.find("type")) for p in template.findall("param")) + ">\n"
        kind = tidy(code_text(node.find("type"))).replace("QUIRE_API ", "")
        start = " ".join(word for word in (made, kind) if word)
        start = f"{head}{start + ' ' if start else ''}{node.findtext('name')}("
        arguments = node.findtext("argsstring") or ""
        tail = arguments[arguments.rfind(")") + 1:].strip()
        tail = f" {tail}" if tail else ""
        line = start + ", ".join(params) + ")" + tail + ";"
        if len(line) > 100 and len(params) > 1:
            line = start + ",\n    ".join(["\n    " + params[0], *params[1:]]) + ")" + tail + ";"
        return re.sub(r"(=0|= 0);$", "= 0;", line)


def first_sentences(text):
    """Returns the text up to the first full stop that ends a sentence."""
    return re.split(r"(?<=[\w)`]\.)\s+(?=[A-Z])", text, maxsplit=1)[0]
