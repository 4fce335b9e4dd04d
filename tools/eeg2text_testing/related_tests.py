"""Which files of tests relate to a module of the package, by who imports whom."""

import ast
import collections
from pathlib import Path

import grimp


class Related:
    def __init__(self, root: Path):
        graph = grimp.build_graph("eeg2text_jax", cache_dir=None)
        importers = {module: graph.find_modules_that_directly_import(module) for module in graph.modules}
        self.importers, self.seconds = importers, {}  # of a file, once it was run to its end
        self.tests: dict[str, set[str]] = collections.defaultdict(set)
        for path in sorted((root / "tests").rglob("test_*.py")):
            for name in _imported(path, root):
                self.tests[name].add(str(path.relative_to(root)))

    def files(self, module: str) -> list[str]:
        """Files of tests by distance in imports (less one in its folder, less one with its name), then by seconds."""
        start = module.removesuffix(".py").replace("/", ".")
        distance, reached = {start: 0}, [start]
        parts = start.split(".")
        folder, own = parts[1] if len(parts) > 2 else "", parts[-1]
        for name in reached:
            for importer in sorted(self.importers.get(name, ())):
                if importer not in distance:
                    distance[importer] = distance[name] + 1
                    reached.append(importer)
        found: dict[str, int] = {}
        for name in reached:
            for test in self.tests[name]:
                closer = (test.split("/")[1] == folder) + (own in Path(test).name)
                found.setdefault(test, distance[name] - closer)
        return sorted(found, key=lambda test: (found[test], self.seconds.get(test, 0.0), test))


def _imported(path: Path, root: Path) -> set[str]:
    """Modules of the package that a file of tests names, with those of the helpers beside it."""
    text = path.read_text()
    found = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    for name in list(found):
        for place in (root / "tests", path.parent, root / "tools", *(root / "tools").glob("*/")):
            helper = place / f"{name.replace('.', '/')}.py"
            if helper.exists() and helper != path:
                found |= _imported(helper, root)
    return {name for name in found if name.startswith("eeg2text_jax")}
