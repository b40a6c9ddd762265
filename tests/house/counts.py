"""How large a tree is: lines of code by part, without tests, comments, docstrings, blanks and generated files."""

from lines import COMMENTS, ENDINGS, Source

OTHERS = ("benchmarks", "docs", "examples", "packaging")


def of_product(top):
    """The parts of what users install: for each crate its Rust and its page, and the folders of the package."""
    counts = {}
    for crate in sorted(path.parent for path in top.glob("crates/*/Cargo.toml")):
        counts[f"crates/{crate.name}"] = _of_crate(crate)
        page = [path for path in _below(crate / "web") if path.suffix in COMMENTS]
        if page:
            counts[f"crates/{crate.name}/web"] = _of_files(page)
    for path in _below(top / "python/reverb"):
        folder = path.parent.relative_to(top).parts[:3]
        counts["/".join(folder)] = counts.get("/".join(folder), 0) + _of_files([path])
    return counts


def of_others(top):
    """The programs beside it."""
    counts = {folder: _of_files(_below(top / folder)) for folder in OTHERS}
    return {folder: count for folder, count in counts.items() if count}


def _of_crate(crate):
    sources = {path: Source(path) for path in [*crate.glob("build.rs"), *crate.rglob("src/**/*.rs")]}
    for_tests = set()
    for path, source in sources.items():
        folder = path.parent if path.stem in ("lib", "mod") else path.with_suffix("")
        for name in source.modules_for_tests():
            for_tests |= {folder / f"{name}.rs", folder / name / "mod.rs"}
    return sum(source.count_untested() for path, source in sources.items() if path not in for_tests)


def _below(folder):
    return sorted(path for path in folder.rglob("*") if path.suffix in ENDINGS and "node_modules" not in path.parts)


def _of_files(paths):
    return sum(Source(path).count_untested() for path in paths)
