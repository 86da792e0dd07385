"""Reads the output of `auditwheel show --json` and prints the platform of the wheel's tag: manylinux_2_N_ARCH, with the oldest glibc on which
the wheel runs.

Fails if a program in the wheel needs a library that is neither in the wheel nor allowed by the manylinux policy.
"""
import json
import re
import sys


def platform_of(shown):
    """Returns (platform, None), or (None, reason)."""
    if shown.get("external_libs"):
        return None, f"libraries outside of the wheel are needed: {', '.join(sorted(shown['external_libs']))}"
    tag = shown.get("overall_tag", "")
    if not re.fullmatch(r"manylinux_2_\d+_\w+", tag):
        return None, f"auditwheel gives the tag '{tag}' instead of a manylinux tag"
    return tag, None


def main():
    platform, reason = platform_of(json.load(sys.stdin))
    if platform is None:
        sys.exit(f"platform_tag: {reason}")
    print(platform)


if __name__ == "__main__":
    main()
