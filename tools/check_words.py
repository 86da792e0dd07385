#!/usr/bin/env python3
"""Checks that comments, docstrings and pages use standard terms and full sentences, as CONTRIBUTING.md requires ("How we write").

Prints each line that breaks a rule, and the share of comment blocks that begin with an opening of a fragment. Exits with 1 if a line breaks
a rule or the share is too large. Also prints, as advice, if the newest commit's subject has another form. Code between backticks is not
checked. Each rule is first tested with its two examples.
"""
import argparse
import ast
import fnmatch
import io
import pathlib
import re
import shutil
import subprocess
import sys
import tokenize

import check_docs

# Paths whose texts are checked. Add a path when its texts follow the rules.
CHECKED = ("src", "include", "python", "tests", "docs", "tools", "bench", "cmake", "dev", "examples", "README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")
MOST_FRAGMENT_OPENINGS = 0.01  # of all comment blocks
MOST_SUBJECT = 72  # characters of a commit's subject

OPENING = re.compile(r"(Of|Who|Whose|Whom|Those|What|Where|Wherever|As|The same|Such|So|Nobody|Somebody)\b")

# (pattern, what to write instead, a text that passes, a text that fails)
RULES = (
    (r"(?<!people )(?<!users )\b(?:who|whom|whoever)\b(?! am\b)", "name the thing: a request, block or thread is 'it' ('that', 'which')",
     "a request that waits", "requests who wait"),
    (r"\b(?:he|his|him|himself|she|her|hers)\b", "it, its", "its blocks", "his blocks"),
    (r"\b(?:no|some|any|every)body(?:'s)?\b", "name the thing that acts", "no thread waits", "nobody waits"),
    (r"\bcure[sd]?\b", "fix", "a fix for sessions", "the cure for sessions"),
    (r"\b(?:told|tells?|telling)\b", "reported, reports, is notified", "the event reports why", "the sink is told why"),
    (r"\banew\b", "again, from scratch", "computed again", "computed anew"),
    (r"\bspoil(?:s|ed|t|ing)?\b", "corrupted, contains NaN or Inf", "corrupted blocks", "spoiled blocks"),
    (r"\bg(?:ive|ives|ave|iving|iven) way\b", "is evicted, is preempted, yields", "the block is evicted", "the block gives way"),
    (r"\b(?:has|have|had) to go\b", "is evicted, is removed", "the block is evicted", "the block has to go"),
    (r"\bput aside\b|\bset aside\b", "swapped out, reserved", "swapped-out blocks", "blocks put aside"),
    (r"\bunder way\b|\bin the midst\b", "in progress, in flight", "loads in flight", "loads under way"),
    (r"\b(?:is|are|was|were|it's) to (?:be|have|do)\b", "must, is", "it must be freed", "it is to be freed"),
    (r"\b(?:is|are|was|were) wanted\b", "is required, is requested", "the block is required", "the block is wanted"),
    (r"\bkept weights\b", "cached packed weights", "cached packed weights", "kept weights"),
    (r"\bhears?\b", "supports audio, receives", "the model supports audio", "the model hears"),
    (r"\bmodels? that (?:see|judge)s?\b", "supports images, is a cross-encoder", "a model that supports images", "a model that sees"),
    (r"\bpictures?\b", "image", "images per prompt", "pictures per prompt"),
    (r"\bmixtures?\b(?! of experts)", "mixture of experts (MoE)", "a mixture of experts", "layers of mixtures"),
    (r"\bbehind\b", "after, below", "the token after the prompt", "the token behind the prompt"),
    (r"\black(?:s|ed|ing)?\b", "is missing, does not have", "blocks are missing", "blocks lack"),
    (r"\bbeside\b", "next to, compared with, in addition to", "next to the file", "beside the file"),
    (r"\bgo(?:es)? on\b|\bwent on\b|\bgoing on\b", "continues", "the request continues", "the request goes on"),
    (r"\bnumbers? that (?:is|are) none\b|\bno numbers?\b", "NaN or Inf", "contains NaN", "numbers that are none"),
    (r"\bat once\b", "immediately, at the same time", "freed immediately", "freed at once"),
    (r"\bmend(?:s|ed|ing)?\b", "fix, repair", "the fix", "mended"),
    (r"\bin vain\b", "without success", "without success", "in vain"),
    (r"\bshel(?:f|ves)\b", "store", "the store in memory", "the shelf"),
    (r"\bof its own\b", "separate, private", "a separate thread", "a thread of its own"),
    (r"\bas it were\b|\bhence\b|\bthereof\b|\bwherein\b|\bthereby\b", "plain words", "so", "hence"),
    (r"\bup to (?:here|there)\b|\bhither\b", "up to this point", "up to this token", "up to here"),
    (r"\bwhat (?:runs|waits|comes|lies|stands|goes|is left|it (?:has|holds)|they (?:have|hold))\b",
     "name the thing: running requests, waiting requests", "running requests", "what runs"),
    (r"\bthose (?:of|that|who|which)\b", "repeat the noun", "the blocks of the request", "those of the request"),
    (r"\b(?:is|are) none\b", "does not exist, there is no", "there is no block", "a block that is none"),
    (r"\blet go\b", "released", "the block is released", "the block is let go"),
)  # fmt: skip
COMPILED = [(re.compile(pattern, re.IGNORECASE), instead) for pattern, instead, _passes, _fails in RULES]

# {path: {text of a line: reason}} of lines that may break a rule
EXCEPTIONS: dict = {}


def cpp_blocks(text):
    """Returns (line, text) of each comment block. Adjacent lines of // are one block; a comment after code is also a block."""
    blocks, open_block = [], None
    in_raw = False
    for number, line in enumerate(text.split("\n"), 1):
        if not in_raw and 'R"' in line and ')"' not in line.split('R"', 1)[1]:
            in_raw = True
        elif in_raw:
            in_raw = ')"' not in line and ')--"' not in line and ')json"' not in line
            open_block = None
            continue
        bare = re.sub(r'"(?:\\.|[^"\\])*"', lambda match: '"' + " " * (len(match[0]) - 2) + '"', line)
        at = bare.find("//")
        if at < 0 or (at > 0 and bare[at - 1] == ":"):
            open_block = None
            continue
        words = re.sub(r"^//+[<!]?\s?", "", line[at:])
        if line[:at].strip():
            blocks.append((number, [words]))
            open_block = None
        elif open_block is not None:
            open_block.append(words)
        else:
            open_block = [words]
            blocks.append((number, open_block))
    return [(number, "\n".join(lines)) for number, lines in blocks]


def python_blocks(text):
    blocks = []
    last = None
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            words = token.string.lstrip("#! ")
            if last is not None and token.start[0] == last + 1 and not token.line[: token.start[1]].strip():
                blocks[-1] = (blocks[-1][0], f"{blocks[-1][1]}\n{words}")
            else:
                blocks.append((token.start[0], words))
            last = token.start[0]
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and ast.get_docstring(node) is not None:
            blocks.append((node.body[0].lineno, node.body[0].value.value.strip()))
    return blocks


def shell_blocks(text):
    blocks, last = [], None
    for number, line in enumerate(text.split("\n"), 1):
        match = re.match(r"\s*#(?!!)\s?(.*)", line)
        if not match:
            continue
        if last == number - 1:
            blocks[-1] = (blocks[-1][0], f"{blocks[-1][1]}\n{match[1]}")
        else:
            blocks.append((number, match[1]))
        last = number
    return blocks


def page_blocks(text):
    """Returns the paragraphs, list items and table rows of a Markdown page, without its listings."""
    text = re.sub(r"^(```+|~~~+)[^\n]*\n.*?^\1[^\S\n]*$", lambda match: "\n" * match[0].count("\n"), text, flags=re.MULTILINE | re.DOTALL)
    blocks, last = [], None
    for number, line in enumerate(text.split("\n"), 1):
        begins = re.match(r"\s*(?:[-*] |\d+\. |\||#)", line)
        if not line.strip() or line.startswith("    "):
            last = None
        elif last == number - 1 and not begins:
            blocks[-1] = (blocks[-1][0], f"{blocks[-1][1]}\n{line}")
            last = number
        else:
            blocks.append((number, re.sub(r"^\s*(?:[-*#]+|\d+\.|\|)\s*", "", line)))
            last = number
    return blocks


READERS = {".h": cpp_blocks, ".cpp": cpp_blocks, ".js": cpp_blocks, ".py": python_blocks, ".sh": shell_blocks, ".cmake": shell_blocks,
           ".md": page_blocks}  # fmt: skip


def plain(text):
    """Returns the text without code between backticks, quoted words, URLs, names of pages and targets of links. Newlines are kept."""
    text = re.sub(r"`[^`]*`|https?://\S+|[\w/]+\.md\b|(?<=\])\([^)\s]*\)", lambda match: "`" + "\n" * match[0].count("\n"), text)
    return re.sub(r'"[^"\n]*"', '""', text)


def problems(path, text):
    """Returns ([(line, what is wrong)], number of blocks, [line of each block that begins with an opening of a fragment])."""
    blocks = READERS[path.suffix](text)
    found, openings = [], []
    excepted = EXCEPTIONS.get(path.as_posix(), {})
    lines = text.split("\n")
    for number, block in blocks:
        words = plain(block)
        if OPENING.match(words):
            openings.append(number)
        for pattern, instead in COMPILED:
            for match in pattern.finditer(words):
                line = number + words[: match.start()].count("\n")
                if line <= len(lines) and lines[line - 1].strip() not in excepted:
                    found.append((line, f"'{match[0]}': {instead}"))
    return found, len(blocks), openings


def listed(paths):
    """Returns the files under the paths that have a reader. A path may contain wildcards."""
    def is_wanted(path):
        return any(path == given or path.startswith(given.rstrip("/") + "/") or fnmatch.fnmatchcase(path, given) for given in paths)
    known = sorted(check_docs.listed_files(pathlib.Path(".")))
    return [pathlib.Path(path) for path in known if pathlib.Path(path).suffix in READERS and is_wanted(path)]


def subject_problem():
    """Returns what is wrong with the subject of the newest commit, or None without a history."""
    asked = subprocess.run(["git", "log", "-1", "--no-merges", "--format=%s"], capture_output=True, text=True) if shutil.which("git") else None
    subject = asked.stdout.strip() if asked and asked.returncode == 0 else ""
    if not subject or re.fullmatch(r"[\w./-]+: \S.{1,%d}" % (MOST_SUBJECT - 3), subject) and len(subject) <= MOST_SUBJECT:
        return None
    return f"commit subject {subject!r}: write 'room: what it does', at most {MOST_SUBJECT} characters"


def test_rules():
    for (pattern, instead, passes, fails), (compiled, _) in zip(RULES, COMPILED):
        if any(rule.search(passes) for rule, _ in COMPILED):
            sys.exit(f"check_words: {passes!r} must pass")
        if not compiled.search(fails):
            sys.exit(f"check_words: {fails!r} must fail ({pattern}: {instead})")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", nargs="*", help="files, folders or wildcards; default: all texts that follow the rules")
    parser.add_argument("--openings", action="store_true", help="print each block with a fragment opening")
    options = parser.parse_args()
    test_rules()
    paths = options.paths or list(CHECKED)
    num_found = num_blocks = num_openings = 0
    for path in listed(paths):
        found, count, openings = problems(path, path.read_text())
        num_blocks += count
        num_openings += len(openings)
        for line, what in sorted(found):
            print(f"{path}:{line}: {what}")
        if options.openings:
            for line in openings:
                print(f"{path}:{line}: fragment opening")
        num_found += len(found)
    wrong_subject = None if options.paths else subject_problem()
    if wrong_subject:
        print(wrong_subject)
    share = num_openings / max(1, num_blocks)
    print(f"{num_found} words, {num_openings} of {num_blocks} blocks begin with a fragment ({share:.1%})")
    return 1 if num_found or share > MOST_FRAGMENT_OPENINGS else 0


if __name__ == "__main__":
    sys.exit(main())
