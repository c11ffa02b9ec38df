"""The address of the repository: `_config.yml` knows it, everything else is rewritten from there.

python -m book.repository    # after changing repository: url in _config.yml
"""

import re
from pathlib import Path

import yaml

from plm.files import write_atomically

ROOT = Path(__file__).resolve().parents[2]
COPIES = ("pyproject.toml", "README.md")  # files that must name the address themselves


def repository_url(root: Path = ROOT) -> str:
    """The address in `_config.yml`, without a slash at the end."""
    return yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))["repository"]["url"].rstrip("/")


def spread(root: Path = ROOT) -> str:
    """Replace the old address, as pyproject.toml has it, by that of `_config.yml` in every copy; returns the new one."""
    url = repository_url(root)
    found = re.search(r'(?m)^Repository = "(.+)"$', (root / "pyproject.toml").read_text(encoding="utf-8"))
    if found is None:
        raise ValueError('pyproject.toml has no line `Repository = "..."` under [project.urls]: put one there')
    for name in COPIES:
        path = root / name
        write_atomically(path, path.read_text(encoding="utf-8").replace(found[1], url))
    return url


if __name__ == "__main__":
    print(f"the book lives at {spread()}; now run make notebooks")
