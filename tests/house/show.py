"""Prints what the checks see: `python tests/house/show.py [TREE] [rust|python] [--arrows [PART]] [--inside] [--count]`.

TREE is the root of a source tree, this one if none is given. With a language, only its cycles are shown; else what the
other checks find as well. `--arrows` adds all arrows, or those from and to files whose path contains PART; `--inside`
adds the arrows between the files of each set that has a cycle. `--count` prints instead how many lines of code the
parts of the tree have, without tests, comments, docstrings, blanks and generated files.
"""

import argparse
import pathlib

import checks
import counts

LANGUAGES = ("rust", "python")


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("tree", nargs="?", default=pathlib.Path(__file__).parents[2], type=pathlib.Path)
    parser.add_argument("language", nargs="?", choices=LANGUAGES)
    parser.add_argument("--arrows", nargs="?", const="", metavar="PART")
    parser.add_argument("--inside", action="store_true")
    parser.add_argument("--count", action="store_true")
    options = parser.parse_args()
    if options.count:
        show_counts(options.tree.resolve())
        return
    tree = checks.Tree(options.tree.resolve())
    if not (tree.rust.names and tree.python.names):
        parser.error(f"{options.tree} is not the root of a source tree: no Rust or no Python files are below it")
    for language in [options.language] if options.language else LANGUAGES:
        show(language, getattr(tree, language), options)
    if not options.language:
        for check in checks.ALL[1:]:
            problems = check(tree)
            print(f"== {check.__name__}: {len(problems)} found", *problems, sep="\n")


def show_counts(top):
    of_product = counts.of_product(top)
    width = max(map(len, of_product))
    for part, count in {**of_product, "in all": sum(of_product.values())}.items():
        print(f"{part:{width}} {count:6}")
    print("beside:", ", ".join(f"{part} {count}" for part, count in counts.of_others(top).items()))


def show(language, graph, options):
    arrows, components = list(graph.arrows()), graph.components()
    print(f"== {language}: {len(graph.names)} files, {len(arrows)} arrows, {len(components)} sets of files in cycles")
    for component, text in zip(components, graph.cycles(), strict=True):
        print(text)
        if options.inside:
            print("  all arrows inside:")
            show_arrows((arrow for arrow in arrows if {*arrow[:2]} <= component), "    ")
    if options.arrows is not None:
        show_arrows((arrow for arrow in arrows if options.arrows in arrow[0] or options.arrows in arrow[1]), "")


def show_arrows(arrows, margin):
    for source, target, names in arrows:
        print(f"{margin}{source} -> {target}: {', '.join(names)}")


if __name__ == "__main__":
    main()
