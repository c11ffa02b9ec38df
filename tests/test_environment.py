"""pyproject.toml, requirements.lock and environment.yml describe one environment, and one URL says where the book lives."""

import re
import tomllib
from importlib.metadata import version

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from book.cells import ROOT, chapters, read

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8")
ENVIRONMENT = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
URL = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))["repository"]["url"]
HOSTED = re.compile(
    r"(?:github\.com|raw\.githubusercontent\.com|colab\.research\.google\.com/github|mybinder\.org/v2/gh)/([\w.-]+/[\w.-]+)"
)


def declared() -> list[Requirement]:
    """What pyproject.toml asks for, extras included."""
    extras = PROJECT["optional-dependencies"].values()
    return [Requirement(line) for line in [*PROJECT["dependencies"], *(line for extra in extras for line in extra)]]


def lock_lines(lock: str) -> list[str]:
    """The lines of a lock that name a package; not comments, options or hashes."""
    lines = (line.split("#")[0].split(" --hash")[0].strip(" \\") for line in lock.splitlines())
    return [line for line in lines if line and not line.startswith("-")]


def lock_faults(lock: str, requirements: list[Requirement]) -> list[str]:
    """Each line pins one version exactly and once; each requirement is pinned within its range."""
    faults, pins = [], {}
    for line in lock_lines(lock):
        requirement = Requirement(line)
        name = canonicalize_name(requirement.name)
        if not re.fullmatch(r"==[^*,]+", str(requirement.specifier)):
            faults.append(f"requirements.lock: {line} is not one exact version")
        if name in pins:
            faults.append(f"requirements.lock: {name} is there twice")
        pins[name] = str(requirement.specifier).removeprefix("==")
    for requirement in requirements:
        pin = pins.get(canonicalize_name(requirement.name))
        if requirement.marker and not requirement.marker.evaluate():
            continue
        if pin is None:
            faults.append(f"requirements.lock: {requirement.name} is missing; run `make lock`")
        elif not requirement.specifier.contains(pin, prereleases=True):
            faults.append(f"requirements.lock: {requirement.name} {pin} is outside {requirement.specifier}")
    return faults


def environment_faults(environment: dict, lock: str, requires_python: str) -> list[str]:
    """environment.yml takes its versions from the lock, installs the package, and has a Python that it allows."""
    conda = [item for item in environment["dependencies"] if isinstance(item, str)]
    pip = [line for item in environment["dependencies"] if isinstance(item, dict) for line in item["pip"]]
    python = [item.partition("=")[2].strip("=") for item in conda if re.match(r"python\b", item)]
    faults = [
        f"environment.yml: {line} is not in the lock" for line in pip if line[0] != "-" and line not in lock_lines(lock)
    ]
    foreign = [item for item in conda if re.split("[=<>]", item)[0] not in ("python", "pip")]
    faults += [f"environment.yml: {item} comes from conda, not from the lock" for item in foreign]
    if "-r requirements.lock" not in pip:
        faults.append("environment.yml: does not install requirements.lock")
    if "-e ." not in pip:
        faults.append("environment.yml: does not install the package (-e .)")
    if len(python) != 1 or not SpecifierSet(requires_python).contains(f"{python[0]}.0"):
        faults.append(f"environment.yml: python {python} is not what pyproject.toml asks for ({requires_python})")
    return faults


def url_faults(text: str, name: str, url: str = URL) -> list[str]:
    """Every link to a repository is to ours, whichever service it goes through."""
    ours = url.removeprefix("https://github.com/")
    found = {match.removesuffix(".git").rstrip(".") for match in HOSTED.findall(text)}
    return [f"{name}: links to {other}, but _config.yml says {ours}" for other in sorted(found - {ours})]


def test_lock_pins_what_pyproject_asks_for():
    assert lock_faults(LOCK, declared()) == []


def test_environment_is_the_lock():
    assert environment_faults(ENVIRONMENT, LOCK, PROJECT["requires-python"]) == []


@pytest.mark.parametrize(
    ("lock", "message"),
    [
        ("numpy>=2", "numpy>=2 is not one exact version"),
        ("numpy==2.*", "numpy==2.* is not one exact version"),
        ("numpy==2.4.6\nNumPy==2.4.6", "numpy is there twice"),
        ("scipy==1.0  # numpy==2.4.6", "numpy is missing"),
        ("--index-url x\nnumpy==1.20", "numpy 1.20 is outside >=1.26"),
    ],
)
def test_lock_that_disagrees_is_refused(lock, message):
    assert message in "\n".join(lock_faults(lock, [Requirement("numpy>=1.26")]))


@pytest.mark.parametrize(
    ("dependencies", "message"),
    [
        (["python=3.10", {"pip": ["-r requirements.lock", "-e ."]}], "python ['3.10'] is not what"),
        (["python=3.11", {"pip": ["-e ."]}], "does not install requirements.lock"),
        (["python=3.11", {"pip": ["-r requirements.lock"]}], "does not install the package"),
        (["python=3.11", "numpy=2", {"pip": ["-r requirements.lock", "-e ."]}], "numpy=2 comes from conda"),
        (["python=3.11", {"pip": ["-r requirements.lock", "-e .", "x==2"]}], "x==2 is not in the lock"),
    ],
)
def test_environment_that_disagrees_is_refused(dependencies, message):
    assert (
        environment_faults({"dependencies": dependencies}, "x==1", ">=3.11")[0].partition(": ")[2].startswith(message)
    )


def test_python_is_the_same_everywhere():
    (conda,) = [item for item in ENVIRONMENT["dependencies"] if str(item).startswith("python=")]
    minor = conda.removeprefix("python=")
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    assert PROJECT["requires-python"].startswith(f">={minor}")
    assert tools["ruff"]["target-version"] == f"py{minor.replace('.', '')}"
    assert tools["mypy"]["python_version"] == minor
    for workflow in (ROOT / ".github/workflows").glob("*.yml"):
        used = re.findall(r"python-version:\s*[\"']?([\d.]+)", workflow.read_text(encoding="utf-8"))
        assert used, f"{workflow.name} sets up no Python"
        assert set(used) == {minor}, workflow.name


def test_torch_is_the_one_this_was_written_for():
    assert "torch==2.13.0" in lock_lines(LOCK)
    assert Version(version("torch")).base_version == "2.13.0"


def test_e06_jupyter_book_stays_below_2():
    (asked,) = [requirement for requirement in declared() if requirement.name == "jupyter-book"]
    assert "<2" in str(asked.specifier).split(",")
    assert any(line.startswith("jupyter-book==1.") for line in lock_lines(LOCK))
    assert Version(version("jupyter-book")).major == 1


def test_one_url_says_where_the_book_lives():
    assert re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+", URL)
    assert PROJECT["urls"]["Repository"] == URL
    files = [ROOT / "pyproject.toml", ROOT / "environment.yml", ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    found = [f for path in files for f in url_faults(path.read_text(encoding="utf-8"), path.name)]
    assert found == []
    assert HOSTED.findall((ROOT / "README.md").read_text(encoding="utf-8")), (
        "the README does not say where the book lives"
    )


@pytest.mark.parametrize("path", chapters(), ids=lambda path: path.stem)
def test_setup_cell_installs_from_that_url(path):
    setup = next(cell.source for cell in read(path).cells if cell.cell_type == "code")
    assert URL in setup
    assert url_faults(setup, path.name) == []


@pytest.mark.parametrize(
    "link",
    [
        "https://github.com/other/book",
        "git clone https://github.com/other/book.git",
        "https://colab.research.google.com/github/other/book/blob/main/chapters/01.ipynb",
        "https://mybinder.org/v2/gh/other/book/main",
    ],
)
def test_another_url_is_refused(link):
    assert "x.md: links to other/book, but _config.yml says ann/book" in url_faults(
        link, "x.md", "https://github.com/ann/book"
    )
    assert url_faults(link, "x.md", "https://github.com/other/book") == []
