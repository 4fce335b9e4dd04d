"""Find the configurations of the package, and execute configuration files.

The package's configurations are in `configs/` of a clone and in `eeg2text_jax/configs/` of an installed wheel. Any
configuration file can `from configs import default`; a folder `configs` beside the file takes precedence over
the package's folder.
"""

import ast
import contextlib
import runpy
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from eeg2text_jax.base.errors import UserError, did_you_mean


def configs_folder() -> Path:
    """Return the folder of the package's configurations."""
    here = Path(__file__).parents[1]
    return next((place for place in (here / "configs", here.parent / "configs") if place.is_dir()), here / "configs")


def shipped() -> dict[str, Path]:
    """Return the package's configurations by name, in alphabetical order."""
    paths = {path.stem: path for path in sorted(configs_folder().glob("*.py"))}
    return {name: path for name, path in paths.items() if name.isidentifier() and name != "arguments"}


def summary(path: Path) -> str:
    """Return the first sentence of a configuration's docstring, without its full stop."""
    about = ast.get_docstring(ast.parse(path.read_text(encoding="utf8"))) or ""
    return " ".join(about.partition("\n\n")[0].split()).removesuffix(".")


def find_config(name: str) -> Path:
    """Return the path of the user's file `name`, or of the package's configuration with this name.

    Raises UserError if neither exists.
    """
    path, paths = Path(name), shipped()
    if path.is_file():
        return path
    if name in paths:
        return paths[name]
    travels = f"--config={path.stem} is in the package."
    raise UserError(
        f"{name}: there is no such configuration file; "
        f"{travels if path.stem in paths else did_you_mean(name, paths)} `eeg2text configs` lists all names."
    )


def run_config(path: Path) -> dict[str, Any]:
    """Execute a configuration file and return its global names."""
    folder = path.resolve().parent
    with _importable([folder if folder.name == "configs" else folder / "configs", configs_folder()]):
        # Only a user's file may import modules from the folder above it.
        places = [] if folder == configs_folder().resolve() else [str(folder.parent)]
        sys.path[:0] = places
        try:
            return runpy.run_path(str(path))
        finally:
            for place in places:
                sys.path.remove(place)


@contextlib.contextmanager
def _importable(folders: list[Path]) -> Iterator[None]:
    """Make modules of `folders` importable as `configs.NAME` inside the context; earlier folders take precedence."""
    before = {name: sys.modules.pop(name) for name in _modules()}
    package = types.ModuleType("configs")
    package.__path__ = [str(folder) for folder in folders if folder.is_dir()]
    sys.modules["configs"] = package
    try:
        yield
    finally:
        for name in _modules():
            del sys.modules[name]
        sys.modules.update(before)


def _modules() -> list[str]:
    """Return the names of imported modules that are `configs` or below it."""
    return [name for name in list(sys.modules) if name == "configs" or name.startswith("configs.")]
