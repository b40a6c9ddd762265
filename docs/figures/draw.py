"""Draws the pictures of the documentation: each `NAME.txt` beside this file becomes `NAME.svg`.

Needs nothing but Python, so the pictures can be changed as text and a test can tell whether they are up to date.

The lines of a text are
  size WIDTH HEIGHT                           of the picture, first of all, in pixels
  group NAME X Y WIDTH HEIGHT TITLE           a frame with a title
  box NAME X Y WIDTH HEIGHT TEXT | TEXT       a box; the text after the bar is smaller
  arrow FROM SIDE TO SIDE [LABEL]             from the middle of a box's side (left, right, top, bottom) to another's
  dashed FROM SIDE TO SIDE [LABEL]            the same, with a dashed line
and comments, which begin with `#`.
"""

import pathlib
import sys
from html import escape

HEAD = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="Helvetica, Arial, sans-serif">
<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto">\
<path d="M0 0 L10 5 L0 10 z" fill="#1f3b57"/></marker></defs>
<rect width="{width}" height="{height}" fill="#ffffff"/>"""
GROUP = '<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="10" fill="#f4f6f8" stroke="#b8c4d0"/>'
BOX = '<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="6" fill="#ffffff" stroke="#1f3b57"/>'
LINE = '<path d="M{x1} {y1} L{x2} {y2}" stroke="#1f3b57" stroke-width="1.5"{dash} marker-end="url(#tip)"/>'
LABEL = '<text x="{x}" y="{y}" font-size="12" fill="#7a3b00" text-anchor="{anchor}">{text}</text>'
TEXT = '<text x="{x}" y="{y}" font-size="{size}" fill="{fill}" text-anchor="middle">{text}</text>'


def draw(source: str) -> str:
    """The picture that a text describes, as SVG."""
    boxes: dict[str, tuple[int, int, int, int]] = {}
    parts = []
    for line in source.splitlines():
        kind, _, rest = line.partition(" ")
        if kind == "size":
            width, height = rest.split()
            parts.append(HEAD.format(width=width, height=height))
        elif kind in ("group", "box"):
            name, *numbers, text = rest.split(maxsplit=5)
            boxes[name] = tuple(int(number) for number in numbers)
            parts += frame(kind, boxes[name], text)
        elif kind in ("arrow", "dashed"):
            from_box, from_side, to_box, to_side, *label = rest.split(maxsplit=4)
            ends = middle(boxes[from_box], from_side), middle(boxes[to_box], to_side)
            parts += arrow(*ends, "".join(label), is_dashed=kind == "dashed")
        elif kind and kind != "#":
            raise ValueError(f"a line begins with {kind!r}; expected size, group, box, arrow, dashed or #")
    return "\n".join([*parts, "</svg>", ""])


def frame(kind, box, text):
    """A group or a box, with its text."""
    x, y, width, height = box
    center = x + width // 2
    shape = (GROUP if kind == "group" else BOX).format(x=x, y=y, width=width, height=height)
    if kind == "group":
        return [shape, TEXT.format(x=center, y=y + 26, size=15, fill="#1f3b57", text=escape(text))]
    first, second = (part.strip() for part in text.split("|"))
    return [
        shape,
        TEXT.format(x=center, y=y + 28, size=14, fill="#000000", text=escape(first)),
        TEXT.format(x=center, y=y + 48, size=12, fill="#55636f", text=escape(second)),
    ]


def middle(box, side):
    """The middle of a box's side."""
    x, y, width, height = box
    return {
        "left": (x, y + height // 2),
        "right": (x + width, y + height // 2),
        "top": (x + width // 2, y),
        "bottom": (x + width // 2, y + height),
    }[side]


def arrow(start, end, label, *, is_dashed):
    """A line with a tip, and its label above the line or to the right of it."""
    (x1, y1), (x2, y2) = start, end
    dash = ' stroke-dasharray="6 4"' if is_dashed else ""
    parts = [LINE.format(x1=x1, y1=y1, x2=x2, y2=y2, dash=dash)]
    if label:
        is_level = y1 == y2
        x, y = (x1 + x2) // 2 + (0 if is_level else 8), (y1 + y2) // 2 + (-8 if is_level else 4)
        parts.append(LABEL.format(x=x, y=y, anchor="middle" if is_level else "start", text=escape(label)))
    return parts


def main() -> int:
    """Draws all pictures of this folder."""
    for source in sorted(pathlib.Path(__file__).parent.glob("*.txt")):
        source.with_suffix(".svg").write_text(draw(source.read_text()))
        print(source.with_suffix(".svg"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
