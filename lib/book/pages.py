"""The guard of the built pages: what went wrong between the source and the HTML."""

import re
from html.parser import HTMLParser

# Places where a dollar is a dollar, and where MathJax finds its formulas.
OPAQUE = {"script", "style", "pre", "code", "title", "textarea"}
VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
LEFT_OVER = re.compile(r"\$\$.{1,500}?\$\$|\$[^$\n]{1,120}\$|\\begin\{(?:align|equation|gather)\*?\}|\\\[", re.DOTALL)
INLINE = {"a", "b", "em", "i", "span", "strong", "sub", "sup"}


class _Prose(HTMLParser):
    """Collects the text of a page outside code and formulas."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[bool] = []  # for each open element: is it opaque?
        self.text: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in INLINE:
            self.text.append("\n")
        if tag not in VOID:
            classes = (dict(attrs).get("class") or "").split()
            self.open.append(tag in OPAQUE or "math" in classes)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID and self.open:
            self.open.pop()

    def handle_data(self, data: str) -> None:
        if not any(self.open):
            self.text.append(data)


def math_faults(html: str) -> list[str]:
    """No formula is left as text between dollars (case E07)."""
    parser = _Prose()
    parser.feed(html)
    hits = LEFT_OVER.findall("".join(parser.text))
    return [f"formula shown as text: {hit[:60]}; a dollar that is money is written \\$" for hit in hits]
