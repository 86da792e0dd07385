"""Finds the places in Python sources that can be mutated, and writes selected mutations next to the original code.

The mutation is chosen at run time: `a < b` becomes `(a <= b if _quire_mutant(7) else a < b)`. Module and class level code, annotations,
default values, texts, log calls and errors are not mutated."""

import ast
import copy
import dataclasses
import pathlib

RELATIONAL = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot,
              ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In}  # fmt: skip
ARITHMETIC = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd}
SKIPPED = (ast.JoinedStr, ast.Raise, ast.Assert, ast.Import, ast.ImportFrom, ast.arguments)
SKIPPED_CALLS = {"logger", "_logger", "_log", "logging", "warnings"}
IMPORT = "from quire._mutants import is_active as _quire_mutant"


@dataclasses.dataclass(frozen=True)
class Mutation:
    path: str  # relative to the repository
    line: int
    place: tuple  # identifies the node and the variant
    key: str
    operator: str


def is_text(node):
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def is_log_call(node):
    value = getattr(node, "value", node)
    while isinstance(value, (ast.Call, ast.Attribute)):
        value = value.func if isinstance(value, ast.Call) else value.value
    return isinstance(value, ast.Name) and value.id in SKIPPED_CALLS


def negated(node):
    return ast.UnaryOp(ast.Not(), copy.deepcopy(node))


def changed(node, **fields):
    other = copy.copy(node)
    for name, value in fields.items():
        setattr(other, name, value)
    return other


def conditions(node):
    """Returns the condition of a node as a list, empty if another mutation already changes the condition (a comparison, `not`)."""
    test = getattr(node, "test", None)
    return [] if test is None or isinstance(test, (ast.Compare, ast.UnaryOp, ast.Constant)) else [test]


def variants(node, is_condition, returns_bool):
    """Returns [(operator, replacement)]. A replacement of None removes a statement."""
    found = []
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and type(node.ops[0]) in RELATIONAL:
        found.append(("relation", changed(node, ops=[RELATIONAL[type(node.ops[0])]()])))
        if isinstance(node.ops[0], (ast.Lt, ast.LtE, ast.Gt, ast.GtE)):
            found.append(("relation", negated(node)))
    elif isinstance(node, ast.BoolOp):
        found.append(("logic", changed(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())))
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        found.append(("negation", node.operand))
    elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
        found.append(("constant", ast.Constant(not node.value)))
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        found.append(("constant", ast.Constant(node.value + 1)))
    elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC and not isinstance(node.left, (ast.Constant, ast.JoinedStr)):
        found.append(("arithmetic", changed(node, op=ARITHMETIC[type(node.op)]())))
    elif isinstance(node, ast.Expr) and isinstance(node.value, (ast.Call, ast.Await)):
        found.append(("statement", None))
    elif isinstance(node, ast.AugAssign):
        found.append(("statement", None))
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], (ast.Attribute, ast.Subscript)):
        found.append(("statement", None))
    elif isinstance(node, (ast.Break, ast.Continue, ast.Delete)):
        found.append(("statement", None))
    if is_condition or (isinstance(node, ast.expr) and returns_bool and not isinstance(node, (ast.Compare, ast.UnaryOp, ast.Constant))):
        found.append(("condition" if is_condition else "return", negated(node)))
    return found


class Walk(ast.NodeTransformer):
    """Visits each node once, children first. `chosen`: {place: number} of the mutations to write; without it, mutations are only found."""

    def __init__(self, path, chosen=None):
        self.path, self.chosen, self.found = path, chosen, []
        self.functions, self.negatable, self.returns_bool = [], set(), set()

    def visit(self, node):
        if isinstance(node, SKIPPED) or is_text(node) or (isinstance(node, (ast.Expr, ast.Call)) and is_log_call(node)):
            return node
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return self.visit_definition(node)
        if not self.functions or isinstance(self.functions[-1], ast.ClassDef):
            return self.generic_visit(node)
        self.negatable.update(map(id, conditions(node)))
        if isinstance(node, ast.Return) and isinstance(self.functions[-1].returns, ast.Name) and self.functions[-1].returns.id == "bool":
            self.returns_bool.add(id(node.value))
        original = copy.deepcopy(node) if self.chosen is None else None
        options = variants(node, id(node) in self.negatable, id(node) in self.returns_bool)
        if self.chosen is None:
            self.note(original, options)
            self.generic_visit(node)
            return node
        numbers = [self.chosen.get(self.place(node, index)) for index in range(len(options))]
        is_condition, is_bool = id(node) in self.negatable, id(node) in self.returns_bool
        return self.gated(self.generic_visit(node), is_condition, is_bool, numbers)

    def visit_definition(self, node):
        if isinstance(node, ast.FunctionDef) and node.name in ("__repr__", "__str__"):
            return node
        self.functions.append(node)
        node.body = [self.visit(child) for child in node.body]
        self.functions.pop()
        return node

    def place(self, node, index):
        return node.lineno, node.col_offset, node.end_lineno, node.end_col_offset, type(node).__name__, index

    def note(self, node, options):
        function = ".".join(one.name for one in self.functions)
        before = " ".join(ast.unparse(node).split())
        for index, (operator, replacement) in enumerate(options):
            after = "pass" if replacement is None else " ".join(ast.unparse(ast.fix_missing_locations(copy.deepcopy(replacement))).split())
            self.found.append(Mutation(self.path, node.lineno, self.place(node, index), f"{self.path} | {function} | {operator}: {before} -> {after}", operator))

    def gated(self, node, is_condition, returns_bool, numbers):
        options = variants(node, is_condition, returns_bool)
        for number, (_, replacement) in zip(numbers, options):
            if number is None:
                continue
            active = ast.Call(ast.Name("_quire_mutant", ast.Load()), [ast.Constant(number)], [])
            if replacement is None:
                node = ast.copy_location(ast.If(ast.UnaryOp(ast.Not(), active), [node], []), node)
            else:
                node = ast.copy_location(ast.IfExp(active, replacement, node), node)
        return node


def find(root, folder):
    """Returns all mutations of the Python sources in the folder."""
    found = []
    for path in sorted(pathlib.Path(root, folder).rglob("*.py")):
        walk = Walk(str(path.relative_to(root)))
        walk.visit(ast.parse(path.read_text()))
        found += walk.found
    return found


def mutated(root, path, chosen):
    """Returns the source of a file with these mutations. chosen: {place: number}."""
    tree = Walk(path, chosen).visit(ast.parse(pathlib.Path(root, path).read_text()))
    first = next((i for i, node in enumerate(tree.body) if not is_text(node) and not (isinstance(node, ast.ImportFrom) and node.module == "__future__")), 0)
    tree.body[first:first] = ast.parse(IMPORT).body
    return ast.unparse(ast.fix_missing_locations(tree)) + "\n"
