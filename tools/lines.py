#!/usr/bin/env python3
"""Counts Rust lines by crate: all of them, and code without comments, blanks and tests.

Tests are the `tests` folders, files named `tests.rs`, `races.rs` or `*_tests.rs`, items under `#[cfg(test)]`, and examples.
"""
import collections
import pathlib
import re
import subprocess

TOOLS = {"tollgate-sim", "tollgate-testkit", "tollgate-trials", "bench", "fuzz"}
RAW_STRING = re.compile(r'b?r(#*)"')
CHARACTER = re.compile(r"'(\\.[^']*|[^\\'])'")
TEST_ITEM = re.compile(
    r"#\[cfg\((?:all\()?test[^\]]*\]\s*(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))? )?"
    r"(?:mod|fn|impl|use|struct|const|static|type)\b[^;{]*([;{])"
)


def without_comments(text):
    """The text without comments, and without braces in literals."""
    out, at = [], 0
    while at < len(text):
        if text.startswith("//", at):
            at = end_or(text.find("\n", at), len(text))
            continue
        if text.startswith("/*", at):
            end = end_or(text.find("*/", at), len(text) - 2) + 2
            out.append("\n" * text.count("\n", at, end))
            at = end
            continue
        raw = RAW_STRING.match(text, at)
        if raw and not (at and (text[at - 1].isalnum() or text[at - 1] == "_")):
            close = '"' + raw.group(1)
            end = end_or(text.find(close, raw.end()), len(text)) + len(close)
        elif text[at] == '"':
            end = at + 1
            while end < len(text) and text[end] != '"':
                end += 2 if text[end] == "\\" else 1
            end += 1
        else:
            character = CHARACTER.match(text, at)
            end = character.end() if character else at + 1
            if not character:
                out.append(text[at])
                at = end
                continue
        out.append(re.sub(r"[{}]", "_", text[at:end]))
        at = end
    return "".join(out)


def end_or(found, default):
    return default if found < 0 else found


def without_tests(text):
    while item := TEST_ITEM.search(text):
        end = item.end()
        depth = 1 if item.group(1) == "{" else 0
        while end < len(text) and depth:
            depth += {"{": 1, "}": -1}.get(text[end], 0)
            end += 1
        text = text[: item.start()] + text[end:]
    return text


def is_test(path):
    name = path.name
    return (
        {"tests", "examples"} & set(path.parts[:-1])
        or name in ("tests.rs", "races.rs")
        or name.endswith("_tests.rs")
    )


def main():
    files = subprocess.run(["git", "ls-files", "*.rs"], capture_output=True, text=True, check=True)
    total, code = collections.Counter(), collections.Counter()
    for path in map(pathlib.Path, files.stdout.split()):
        if not path.exists():
            continue
        crate = path.parts[1] if path.parts[0] == "crates" else path.parts[0]
        text = path.read_text()
        total[crate] += text.count("\n")
        if not is_test(path):
            lines = without_tests(without_comments(text)).split("\n")
            code[crate] += sum(1 for line in lines if line.strip())
    print(f"{'crate':24}{'lines':>9}{'code':>9}")
    for crate in sorted(total):
        print(f"{crate:24}{total[crate]:9}{code[crate]:9}")
    tools = sum(count for crate, count in code.items() if crate in TOOLS)
    print(f"{'shipped crates':24}{'':9}{sum(code.values()) - tools:9}")
    print(f"{'tools for tests':24}{'':9}{tools:9}")
    print(f"{'all':24}{sum(total.values()):9}{sum(code.values()):9}")


main()
