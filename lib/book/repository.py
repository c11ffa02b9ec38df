"""The address of the repository: `_config.yml` knows it, everything else is rewritten from there.

python -m book.repository    # after changing repository: url in _config.yml
"""

import re
from pathlib import Path

import yaml

from plm.files import write_atomically

ROOT = Path(__file__).resolve().parents[2]


def repository_url(root: Path = ROOT) -> str:
    """The address in `_config.yml`, without a slash at the end."""
    return yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))["repository"]["url"].rstrip("/")


def with_url(pyproject: str, url: str) -> str:
    """The text of pyproject.toml with its repository address replaced."""
    return re.sub(r'(?m)^(Repository = )".*"$', rf'\g<1>"{url}"', pyproject)


if __name__ == "__main__":
    path = ROOT / "pyproject.toml"
    write_atomically(path, with_url(path.read_text(encoding="utf-8"), repository_url()))
    print(f"the book lives at {repository_url()}; now run make notebooks")
