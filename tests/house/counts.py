"""How large a tree is: lines of code by part, without tests, comments, docstrings, blanks and generated files."""

from lines import ENDINGS, Source

OTHERS = ("benchmarks", "docs", "examples", "packaging")


def of_product(top):
    """The parts of what users install: for each crate its Rust and its page, and the folders of the package."""
    counts = {}
    for crate in crates(top):
        counts[f"crates/{crate.name}"] = _sum(sources_of(crate))
        counts[f"crates/{crate.name}/web"] = _sum(sources_of_page(crate))
    for source in sources_of_package(top):
        folder = "/".join(source.path.parent.relative_to(top).parts[:3])
        counts[folder] = counts.get(folder, 0) + source.count_untested()
    return {part: count for part, count in counts.items() if count}


def of_others(top):
    """The programs beside it."""
    counts = {folder: _sum(map(Source, _below(top / folder))) for folder in OTHERS}
    return {folder: count for folder, count in counts.items() if count}


def sources_of(crate):
    """The Rust files of a crate that not only tests compile."""
    sources = {path: Source(path) for path in [*crate.glob("build.rs"), *sorted(crate.rglob("src/**/*.rs"))]}
    for_tests = set()
    for path, source in sources.items():
        folder = path.parent if path.stem in ("lib", "mod") else path.with_suffix("")
        for name in source.modules_for_tests():
            for_tests |= {folder / f"{name}.rs", folder / name / "mod.rs"}
    return [source for path, source in sources.items() if path not in for_tests]


def sources_of_page(crate):
    """The files of a crate's page."""
    return [Source(path) for path in _below(crate / "web")]


def sources_of_package(top):
    """The modules and stubs of the package."""
    return [Source(path) for path in _below(top / "python/reverb")]


def crates(top):
    return sorted(path.parent for path in top.glob("crates/*/Cargo.toml"))


def _below(folder):
    return sorted(path for path in folder.rglob("*") if path.suffix in ENDINGS and "node_modules" not in path.parts)


def _sum(sources):
    return sum(source.count_untested() for source in sources)
