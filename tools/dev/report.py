#!/usr/bin/env python3
"""What the suites would hide: every skipped test with its reason, and what tests printed (measured figures, instruction sets that ran).

Usage: report.py JUNIT.xml...   (of `ctest --output-junit` and `pytest --junitxml`). Ends with 'N passed, N failed, N skipped'; exits with 1 if
a test failed or a skip gives no reason.
"""
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

GTEST_NOISE = re.compile(r"^(\[[ =\-A-Z]{10}\]|Note: |Running main|$|.*: Skipped$)")
FUZZER_NOISE = re.compile(r"^(INFO: |#\d+|#{6} |stat::|Done \d+ runs|[A-Z]\w+: .*(corpus|seed)|Seed: |\s*\".*\" # Uses: \d+$)")


def printed_lines(case):
    text = (case.findtext("system-out") or "") + (case.findtext("system-err") or "")
    return [line for line in text.splitlines() if not GTEST_NOISE.match(line) and not FUZZER_NOISE.match(line)]


def skip_reason(case):
    """None: not skipped. ctest gives gtest's whole output, in which the reason follows 'FILE:LINE: Skipped'."""
    skipped = case.find("skipped")
    if skipped is None and case.get("status") not in ("notrun", "disabled"):
        return None
    lines = (case.findtext("system-out") or "").splitlines()
    for index, line in enumerate(lines[:-1]):
        if line.endswith(": Skipped"):
            return lines[index + 1].strip()
    reason = (skipped.get("message") or "") if skipped is not None else ""
    return "" if reason in ("", "SKIP_RETURN_CODE=77", "SKIP_REGULAR_EXPRESSION") or "REGULAR_EXPRESSION" in reason else reason


def read(path):
    root = ElementTree.parse(path).getroot()
    for case in root.iter("testcase"):
        failed = case.find("failure") is not None or case.find("error") is not None
        name = f"{case.get('classname')}.{case.get('name')}" if case.get("classname") not in (None, case.get("name")) else case.get("name")
        yield name, failed, skip_reason(case), printed_lines(case)


def main():
    passed, failed, skipped, figures = 0, [], [], []
    for path in sys.argv[1:]:
        if not pathlib.Path(path).is_file():
            failed.append(f"{path} (not written: its suite did not run to the end)")
            continue
        for name, bad, reason, lines in read(path):
            if bad:
                failed.append(name)
            elif reason is not None:
                skipped.append((name, reason))
            else:
                passed += 1
                if lines:
                    figures.append((name, lines))
    if figures:
        print("What tests printed:")
        for name, lines in figures:
            print(f"  {name}", *(f"    {line}" for line in lines), sep="\n")
    print("Skipped:" if skipped else "Skipped: none")
    for name, reason in skipped:
        print(f"  {name}: {reason or 'NO REASON GIVEN'}")
    for name in failed:
        print(f"FAILED {name}")
    print(f"{passed} passed, {len(failed)} failed, {len(skipped)} skipped")
    sys.exit(1 if failed or any(not reason for _, reason in skipped) else 0)


if __name__ == "__main__":
    main()
