"""The recipes of CONTRIBUTING.md: each lists all places of its example, so that who follows it forgets none."""

import dataclasses
import re

import counts
from documents import CODE, named_paths
from lines import ENDINGS, Source

DOCUMENT = "CONTRIBUTING.md"
EXAMPLE = re.compile(r"^Example: (.*?)\.(?: |$)", re.MULTILINE)


@dataclasses.dataclass
class Recipe:
    """One recipe: its title, the words of its example, and the files and folders that it lists.

    A paragraph that begins with `Also` lists places that may be without the example.
    """

    title: str
    words: list
    listed: set
    may_lack: set


def recipes_of(top):
    text = (top / DOCUMENT).read_text()
    text = text.partition("\n## Recipes\n")[2].partition("\n## ")[0]
    for section in text.split("\n### ")[1:]:
        title, _, body = section.partition("\n")
        paragraphs = re.split(r"\n\n(?! )", body.strip())
        optional = [paragraph for paragraph in paragraphs if paragraph.startswith("Also ")]
        others = "\n\n".join(paragraph for paragraph in paragraphs if paragraph not in optional)
        example = EXAMPLE.search(others)
        words = CODE.findall(example[1]) if example else []
        listed, may_lack = (set(named_paths(text, top, with_heads=False)) for text in (others, "\n\n".join(optional)))
        yield Recipe(title, words, listed, may_lack)


def faults(top):
    """Places of what users install that a recipe omits, and listed places that its example is not in.

    Tests and documents may name an example without being listed. Code has to be listed if it has the example, not for
    its comments. In a place that is listed, it may be written in capitals or small letters, and in a comment.
    """
    problems = []
    sources = [
        source for crate in counts.crates(top) for source in (*counts.sources_of(crate), *counts.sources_of_page(crate))
    ]
    sources += [*counts.sources_of_package(top), *map(Source, sorted(top.glob("proto/reverb/**/*.proto")))]
    codes = {source.path.relative_to(top).as_posix(): source.untested_code() for source in sources}
    for recipe in recipes_of(top):
        if not recipe.words:
            problems.append(f"{recipe.title}: a line `Example: ...` with what to search for is missing")
            continue
        pattern = rf"\b({'|'.join(map(re.escape, recipe.words))})\b"
        places = recipe.listed | recipe.may_lack
        problems += [
            f"{recipe.title}: {file} has {found[0]}, and is not listed"
            for file, code in codes.items()
            if (found := re.search(pattern, code))
            and not any(file == place or (place.endswith("/") and file.startswith(place)) for place in places)
        ]
        problems += [
            f"{recipe.title}: {place} is listed, and has none of {', '.join(recipe.words)}"
            for place in sorted(recipe.listed)
            if not any(re.search(pattern, path.read_text(), re.IGNORECASE) for path in _files(top, place))
        ]
    return problems


def _files(top, place):
    paths = sorted((top / place).rglob("*")) if place.endswith("/") else [top / place]
    return [path for path in paths if path.suffix in (*ENDINGS, ".md") and path.is_file()]
