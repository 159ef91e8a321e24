"""Adds up the results of a test run and prints "N passed, N failed" as the last line.

Reads the XML files of a folder: ctest.xml (one entry a test executable), GoogleTest's own files
(one entry a test), pytest.xml. An executable that left no file of its own counts as one test.
Exits with 1 when a test failed, when none ran, or when a part is missing.
"""

import pathlib
import sys
import xml.etree.ElementTree as ElementTree


def outcomes(path):
    """Yields (name, state) of every test case in a JUnit-like file."""
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        name = f"{case.get('classname', '')}.{case.get('name', '')}"
        if case.find("failure") is not None or case.find("error") is not None:
            yield name, "failed"
        elif case.find("skipped") is not None or case.get("status") == "notrun":
            yield name, "skipped"
        else:
            yield name, "passed"


def main():
    folder = pathlib.Path(sys.argv[1])
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    problems = []
    for part in ("ctest.xml", "pytest.xml"):
        if not (folder / part).exists():
            problems.append(f"{part} is missing: that part did not run")

    def add(name, state):
        counts[state] += 1
        if state == "failed":
            problems.append(name)
        if state == "skipped":
            print(f"absent here: {name}")

    for path in sorted(folder.glob("*.xml")):
        if path.name != "ctest.xml":
            for name, state in outcomes(path):
                add(name, state)
    if (folder / "ctest.xml").exists():
        for name, state in outcomes(folder / "ctest.xml"):
            executable = name.rsplit(".", 1)[-1]
            own = folder / f"{executable}.xml"
            own_states = {s for _, s in outcomes(own)} if own.exists() else set()
            # A crash after some tests, or a test that is no GoogleTest executable.
            if not own_states or (state == "failed" and "failed" not in own_states):
                add(executable, state)

    for problem in problems:
        print(f"failed: {problem}")
    failed = max(counts["failed"], len(problems))
    if counts["passed"] == 0:
        failed = max(failed, 1)
    if counts["skipped"]:
        print(f"{counts['skipped']} absent on this machine")
    print(f"{counts['passed']} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
