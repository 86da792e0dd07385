"""Finds the places in the core's sources that can be mutated, and their mutations, in the syntax trees of the sources."""

import dataclasses
import pathlib
import re

import tree_sitter
import tree_sitter_cpp

PARSER = tree_sitter.Parser(tree_sitter.Language(tree_sitter_cpp.language()))

RELATIONAL = {"<": ("<=", ">="), "<=": ("<", ">"), ">": (">=", "<="), ">=": (">", "<"), "==": ("!=",), "!=": ("==",)}
ARITHMETIC = {"+": "-", "-": "+", "*": "+", "/": "*", "%": "*", "&": "|", "|": "&", "<<": ">>", ">>": "<<"}
LOGICAL = {"&&": "||", "||": "&&"}
COMPOUND = {"+=": "-=", "-=": "+=", "*=": "+=", "/=": "*=", "|=": "&=", "&=": "|=", ">>=": "<<=", "<<=": ">>="}
SWAPPED_CALLS = {"min": "max", "max": "min", "min_element": "max_element", "max_element": "min_element", "any_of": "all_of", "all_of": "any_of"}
INTEGERS = re.compile(r"(std::)?(u?int\d+_t|size_t|ptrdiff_t)$|int$|unsigned$")

# Code below these nodes decides nothing at run time.
SKIPPED_NODES = {"template_argument_list", "static_assert_declaration", "enumerator_list", "field_declaration", "optional_parameter_declaration",
                 "attribute_declaration", "decltype", "sizeof_expression", "preproc_include", "preproc_def", "preproc_if", "using_declaration",
                 "alias_declaration", "requires_clause", "ERROR"}
# Not mutated: checks (they detect mutants), texts of messages, and capacities (num_expected_bytes of a checkpoint).
SKIPPED_CALLS = {"QUIRE_CHECK", "fmt::format", "reserve"}
SKIPPED_FUNCTIONS = {"check_invariants", "check_request_state", "holds_blocks", "num_expected_bytes"}


@dataclasses.dataclass(frozen=True)
class Mutation:
    path: str  # relative to the repository
    line: int
    end_line: int
    function: str
    operator: str
    start: int
    end: int
    original: str  # on one line
    mutated: str
    before: tuple  # the replacement: strings, and (start, end) of parts to copy; "#" is replaced by the mutant's number
    after: tuple

    @property
    def key(self):
        return f"{self.path} | {self.function} | {self.operator}: {self.original} -> {self.mutated}"


LITERAL_OR_SPACE = re.compile(r'''(R"(\w*)\(.*?\)\2"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|(?:\s|//[^\n]*)+''', re.S)


def flat(text):
    """Returns the text on one line, without comments. Literals do not change."""
    return LITERAL_OR_SPACE.sub(lambda match: match[1] or " ", text).strip()


class Walk:
    def __init__(self, root, path):
        self.path = path
        self.source = (root / path).read_bytes()
        self.found = []
        self.visit(PARSER.parse(self.source).root_node, "", "", False)

    def text(self, node):
        return self.source[node.start_byte : node.end_byte].decode()

    def add(self, node, function, operator, mutated, before, after):
        self.found.append(Mutation(self.path, node.start_point[0] + 1, node.end_point[0] + 1, function, operator, node.start_byte, node.end_byte,
                                   flat(self.text(node)), flat(mutated), before, after))

    def choose(self, node, function, operator, variant):
        """Returns the text of the node, or of the variant's parts."""
        mutated = "".join(part if isinstance(part, str) else self.text(part) for part in variant)
        parts = tuple(part if isinstance(part, str) else (part.start_byte, part.end_byte) for part in variant)
        self.add(node, function, operator, mutated, ("(QUIRE_MUTANT(#) ? (", *parts, ") : ("), ("))",))

    def negate(self, node, function, operator):
        if operator != "negation" and (self.text(node).startswith("!") or re.search(r" [!=]= ", self.text(node))):
            return  # the same mutant already exists
        self.add(node, function, operator, f"!({self.text(node)})", ("(QUIRE_MUTANT(#) != static_cast<bool>(",), ("))",))

    def shift(self, node, function, operator, sign):
        self.add(node, function, operator, f"{self.text(node)} {sign} 1", ("((",), (f") {sign} QUIRE_MUTANT(#))",))

    def skips(self, node):
        if node.type in SKIPPED_NODES:
            return True
        if node.type == "call_expression":
            name = node.child_by_field_name("function")
            return self.text(name) in SKIPPED_CALLS or (name.type == "field_expression" and self.text(name.child_by_field_name("field")) in SKIPPED_CALLS)
        if node.type in ("declaration", "if_statement"):
            return re.match(r"(static |inline )*constexpr |if constexpr", self.text(node)) is not None
        return False

    def visit(self, node, function, returns, in_lambda):
        if self.skips(node):
            return
        if node.type == "function_definition":
            declarator, kind = node.child_by_field_name("declarator"), node.child_by_field_name("type")
            if declarator is not None:
                function = flat(self.text(declarator)).split("(")[0].lstrip("&* ")
            returns, in_lambda = (self.text(kind) if kind is not None else ""), False
            if function.split("::")[-1] in SKIPPED_FUNCTIONS:
                return
        elif node.type == "lambda_expression":
            in_lambda = True
        if function:
            handler = getattr(self, node.type, None)
            if handler is not None:
                handler(node, function, "" if in_lambda else returns)
        fields = [(child, node.field_name_for_child(i)) for i, child in enumerate(node.children)]
        for child, field in fields:
            if (node.type == "array_declarator" and field == "size") or (node.type == "case_statement" and field == "value"):
                continue
            self.visit(child, function, returns, in_lambda)

    # One method per kind of node.
    def binary_expression(self, node, function, _returns):
        left, right = node.child_by_field_name("left"), node.child_by_field_name("right")
        sign = self.text(node.child_by_field_name("operator"))
        for other in RELATIONAL.get(sign, ()):
            self.choose(node, function, "relation", (left, f" {other} ", right))
        if sign in LOGICAL:
            self.choose(node, function, "logic", (left, f" {LOGICAL[sign]} ", right))
        if sign in ARITHMETIC:
            self.choose(node, function, "arithmetic", (left, f" {ARITHMETIC[sign]} ", right))
            self.shift(node, function, "off by one", "+")
            self.shift(node, function, "off by one", "-")

    def unary_expression(self, node, function, _returns):
        if self.text(node).startswith("!"):
            self.negate(node, function, "negation")

    def number_literal(self, node, function, _returns):
        self.shift(node, function, "constant", "+")
        if not self.text(node).startswith("0") or "x" in self.text(node):
            self.shift(node, function, "constant", "-")

    def true(self, node, function, _returns):
        self.add(node, function, "constant", "false", ("(",), (" != QUIRE_MUTANT(#))",))

    def false(self, node, function, _returns):
        self.add(node, function, "constant", "true", ("(",), (" != QUIRE_MUTANT(#))",))

    def call_expression(self, node, function, _returns):
        name = node.child_by_field_name("function")
        match = re.match(r"(std::(?:ranges::)?)(\w+)", self.text(name))
        if match and match[2] in SWAPPED_CALLS:
            other = self.text(name).replace(match[0], match[1] + SWAPPED_CALLS[match[2]], 1)
            self.choose(node, function, "min, max, any, all", (other, node.child_by_field_name("arguments")))

    def condition_clause(self, node, function, _returns):
        if node.parent.type == "switch_statement":
            return
        value = node.child_by_field_name("value")
        if value is not None and value.type != "declaration" and value.type != "condition_declaration":
            self.negate(value, function, "condition")

    def conditional_expression(self, node, function, _returns):
        self.negate(node.child_by_field_name("condition"), function, "condition")

    def loop(self, node, function):
        condition = node.child_by_field_name("condition")
        if condition is not None and condition.type == "condition_clause":
            condition = condition.child_by_field_name("value")
        if condition is not None and "declaration" not in condition.type:
            self.add(condition, function, "loop", "false", ("(!QUIRE_MUTANT(#) && static_cast<bool>(",), ("))",))

    def while_statement(self, node, function, _returns):
        self.loop(node, function)

    def for_statement(self, node, function, _returns):
        self.loop(node, function)

    def drop(self, node, function):
        self.add(node, function, "statement", ";", ("{ if (!QUIRE_MUTANT(#)) ",), (" }",))

    def expression_statement(self, node, function, _returns):
        expression = node.named_children[0] if node.named_children else None
        if expression is None or self.skips(expression):
            return
        self.drop(node, function)
        if expression.type == "assignment_expression":
            sign = self.text(expression.child_by_field_name("operator"))
            if sign in COMPOUND:
                left, right = expression.child_by_field_name("left"), expression.child_by_field_name("right")
                parts = ((left.start_byte, left.end_byte), f" {COMPOUND[sign]} ", (right.start_byte, right.end_byte))
                mutated = f"{self.text(left)} {COMPOUND[sign]} {self.text(right)};"
                self.add(node, function, "assignment", mutated, ("{ if (QUIRE_MUTANT(#)) ", *parts, "; else "), (" }",))

    def continue_statement(self, node, function, _returns):
        self.drop(node, function)

    def break_statement(self, node, function, _returns):
        if node.parent.type != "case_statement":
            self.drop(node, function)

    def return_statement(self, node, function, returns):
        value = node.named_children[0] if node.named_children else None
        if value is None:
            self.drop(node, function)
        elif returns == "bool" and value.type not in ("true", "false", "unary_expression"):
            self.negate(value, function, "return")
        elif INTEGERS.match(returns) and value.type not in ("number_literal", "initializer_list"):
            self.shift(value, function, "return", "+")


CORE = ("src/core",)


def find(root, folders=CORE):
    """Returns all mutations of the sources in these folders, except sources that are compiled only if a library is missing."""
    found = (p for folder in folders for p in pathlib.Path(root, folder).rglob("*") if p.suffix in (".h", ".cpp"))
    files = sorted({str(p.relative_to(root)) for p in found if not re.search(r"_(absent|plain)\.cpp$", p.name)})
    return [mutation for path in files for mutation in Walk(pathlib.Path(root), path).found]
