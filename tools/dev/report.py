#!/usr/bin/env python3
"""Prints results that the suites hide: every skipped test with its reason, the output of tests (measured figures, tested instruction sets),
and the slowest suites.

Usage: report.py JUNIT.xml...   (of `ctest --output-junit` and `pytest --junitxml`). A suite is a gtest fixture or a Python file. The last
line is 'N passed, N failed, N skipped'. Exits with 1 if a test failed or a skip has no reason.
"""
import pathlib
import re
import sys
import xml.etree.ElementTree as ElementTree

GTEST_NOISE = re.compile(r"^(\[[ =\-A-Z]{10}\]|Note: |Running main|$|.*: Skipped$)")
NUM_SLOWEST = 10
FUZZER_NOISE = re.compile(r"^(INFO: |#\d+|#{6} |stat::|Done \d+ runs|[A-Z]\w+: .*(corpus|seed)|Seed: |\s*\".*\" # Uses: \d+$)")


def printed_lines(case):
    text = (case.findtext("system-out") or "") + (case.findtext("system-err") or "")
    return [line for line in text.splitlines() if not GTEST_NOISE.match(line) and not FUZZER_NOISE.match(line)]


def skip_reason(case):
    """Returns the reason, or None if the test was not skipped. ctest gives gtest's whole output; the reason follows 'FILE:LINE: Skipped'."""
    skipped = case.find("skipped")
    if skipped is None and case.get("status") not in ("notrun", "disabled"):
        return None
    lines = (case.findtext("system-out") or "").splitlines()
    for index, line in enumerate(lines[:-1]):
        if line.endswith(": Skipped"):
            return lines[index + 1].strip()
    reason = (skipped.get("message") or "") if skipped is not None else ""
    return "" if reason in ("", "SKIP_RETURN_CODE=77", "SKIP_REGULAR_EXPRESSION") or "REGULAR_EXPRESSION" in reason else reason


def suite_of(case):
    """Returns the suite of a test: a gtest fixture without its instantiation ('All/Fixture.Case/3'), a Python file, or otherwise the test's
    name."""
    name, classname = case.get("name") or "", case.get("classname")
    if classname not in (None, name):
        return classname
    parts = name.split(".")[0].split("/")
    return parts[-1] if "." in name else name


def slowest(paths, count):
    """Returns (seconds, number of tests, suite) of each report's suites, the slowest first."""
    seconds, tests = {}, {}
    for path in paths:
        for case in ElementTree.parse(path).getroot().iter("testcase"):
            key = f"{suite_of(case)} ({path.stem})"
            seconds[key] = seconds.get(key, 0) + float(case.get("time") or 0)
            tests[key] = tests.get(key, 0) + 1
    return [(seconds[key], tests[key], key) for key in sorted(seconds, key=seconds.get, reverse=True)[:count]]


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
    print("Slowest suites, by the time of their tests:")
    for seconds, tests, suite in slowest([path for path in map(pathlib.Path, sys.argv[1:]) if path.is_file()], NUM_SLOWEST):
        print(f"  {seconds:7.1f} s  {suite}, {tests} tests")
    print("Skipped:" if skipped else "Skipped: none")
    for name, reason in skipped:
        print(f"  {name}: {reason or 'NO REASON GIVEN'}")
    for name in failed:
        print(f"FAILED {name}")
    print(f"{passed} passed, {len(failed)} failed, {len(skipped)} skipped")
    sys.exit(1 if failed or any(not reason for _, reason in skipped) else 0)


if __name__ == "__main__":
    main()
