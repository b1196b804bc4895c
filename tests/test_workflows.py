"""The workflow files of the code host, .ci/run, README.md and CONTRIBUTING.md name the same commands."""

from __future__ import annotations

import fnmatch
import os
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from hetero.base.version import __version__

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))

pytestmark = pytest.mark.skipif(not WORKFLOWS, reason="source distributions have no workflow files")


def commands_of(workflow: str) -> list[str]:
    """The commands of a workflow. Each takes one line."""
    text = (ROOT / ".github" / "workflows" / f"{workflow}.yml").read_text()
    found = re.findall(r"^ +(?:- )?run: *(.*)$", text, re.MULTILINE)
    assert found
    assert not [command for command in found if command in {"", "|", ">", "|-", ">-"}], "a command of several lines"
    return found


def marked_in_readme(name: str) -> str:
    """The command below a mark, as .ci/run finds it."""
    [command] = re.findall(rf"<!-- {name} -->\n    (.*)\n", (ROOT / "README.md").read_text())
    return str(command)


def without_environment(command: str) -> str:
    """A command of the README as it is in an environment that is active."""
    [folder] = set(re.findall(r"\.venv[-\w]*", command))
    command = command.replace(f"python3 -m venv {folder} && ", "")
    return command.replace(f"{folder}/bin/", "").replace("pip install -q ", "pip install ")


@pytest.mark.parametrize("workflow", ["ci", "nightly"])
def test_workflows_run_commands_of_the_documentation(workflow: str) -> None:
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    for command in commands_of(workflow):
        if command == ".ci/run" or command == without_environment(marked_in_readme("docs")):
            continue
        _, _, last = command.rpartition(" && ")
        assert last in contributing or last.split()[0] in contributing, f"CONTRIBUTING.md lacks `{last}`"


def test_ci_runs_each_kind_of_check() -> None:
    text = "\n".join(commands_of("ci"))
    scripts = ["tools/warnings.sh gcc clang", "tools/checked.sh", "tools/lowest.sh", ".ci/run", "pre-commit run"]
    scripts += ["tools/build_wheels.py"]
    assert [script for script in scripts if script not in text] == []


def test_each_night_there_are_new_seeds_and_races() -> None:
    text = "\n".join(commands_of("nightly"))
    assert "pytest -m fuzz tests/hostile tests/fuzz" in text
    assert "tools/races.sh" in text


def test_ci_run_reads_commands_that_the_readme_has() -> None:
    [names] = re.findall(r"^for name in (.*); do$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert names.split() == ["demo", "test"]
    for name in names.split():
        assert marked_in_readme(name).startswith("python3 -m venv ")


@pytest.mark.parametrize("workflow", [path.stem for path in WORKFLOWS])
def test_scripts_exist(workflow: str) -> None:
    for script in re.findall(r"(?<!\S)(?:tools/\S+|\.ci/\S+)", "\n".join(commands_of(workflow))):
        assert (ROOT / script).is_file(), script
        assert script.endswith(".py") or os.access(ROOT / script, os.X_OK), f"{script} is not executable"


def test_release_builds_each_wheel_twice_and_publishes_only_after_demos() -> None:
    """Without the names of targets, the tool builds all of them."""
    assert "python tools/build_wheels.py --twice" in commands_of("release")
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text()
    assert "needs: [wheels, demo]" in text
    [runners] = re.findall(r"matrix: \{runner: \[(.*)\]\}", text)
    names = {"manylinux": "ubuntu", "macos": "macos", "windows": "windows"}  # musllinux: the host has no such system
    targets = [name.partition("_")[0] for name in runpy.run_path(str(ROOT / "tools" / "build_wheels.py"))["TARGETS"]]
    for target, runner in names.items():
        assert len(re.findall(rf"\b{runner}-", runners)) == targets.count(target), target
    assert set(targets) == {*names, "musllinux"}


@pytest.mark.parametrize(("tag", "status"), [(f"v{__version__}", 0), (f"v{__version__}.1", 1), (__version__, 1)])
def test_release_compares_the_tag_with_the_version(tag: str, status: int) -> None:
    [code] = re.findall(r"^python -c '(.*)' \"\$GITHUB_REF_NAME\"$", "\n".join(commands_of("release")), re.MULTILINE)
    assert subprocess.run([sys.executable, "-c", code, tag], cwd=ROOT, check=False).returncode == status


@pytest.mark.parametrize("workflow", [path.stem for path in WORKFLOWS])
def test_workflows_use_the_lowest_python(workflow: str) -> None:
    [lowest] = re.findall(r'^requires-python = ">=(.*)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    used = re.findall(r'python-version: "(.*?)"', (ROOT / ".github" / "workflows" / f"{workflow}.yml").read_text())
    assert set(used) == {lowest}


def test_release_finds_the_wheel_whose_contents_it_lists() -> None:
    """`wheel tags` sorts the tags of a platform."""
    [pattern] = re.findall(r"tools/sbom\.sh dist/(\S+)", "\n".join(commands_of("release")))
    targets = runpy.run_path(str(ROOT / "tools" / "build_wheels.py"))["TARGETS"].values()
    tags = [".".join(sorted(target.tags.split("."))) for target in targets]
    assert len(fnmatch.filter([f"hetero-{__version__}-cp311-abi3-{tag}.whl" for tag in tags], pattern)) == 1


def test_pre_commit_checks_types_against_all_dependencies() -> None:
    """Without a package, mypy treats its names as unknown and reports classes that are derived from them."""
    text = (ROOT / ".pre-commit-config.yaml").read_text()
    [listed] = re.findall(r"additional_dependencies: \[(mypy.*)\]", text)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    required = {re.split(r"[><=]", requirement)[0] for requirement in project["dependencies"]}
    assert required - set(listed.split(", ")) == set()


@pytest.mark.parametrize("workflow", [path.stem for path in WORKFLOWS])
def test_workflows_pin_actions(workflow: str) -> None:
    """The owner of an action can move its tags, also to other code."""
    text = (ROOT / ".github" / "workflows" / f"{workflow}.yml").read_text()
    used = re.findall(r"^ +- uses: *(.*)$", text, re.MULTILINE)
    assert used
    assert [action for action in used if not re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v[\d.]+", action)] == []
