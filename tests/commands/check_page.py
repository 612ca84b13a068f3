#!/usr/bin/env python3
"""Holds a report to what a page of one file must be: well-formed, of itself alone, and named for screen readers.

    check_page.py FILE [--script]

--script: the page may have a script of its own. Prints what is wrong and ends with 1 if something is.
"""
import re
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

SVG = "{http://www.w3.org/2000/svg}"
INSIDE = "url(data:image/bmp;base64,"  # an image in the page itself


def mistakes(content, may_have_script):
    page = ElementTree.fromstring(content)  # HTML that is XML too: an error names line and column
    names = [element.get("id") for element in page.iter() if element.get("id")]
    yield from (f"id {name} stands twice" for name in set(names) if names.count(name) > 1)
    for element in page.iter():
        tag = element.tag.removeprefix(SVG)
        if tag == "script" and may_have_script:
            yield from (f"the script uses {word}" for word in ("fetch", "XMLHttp", "import", "http", "eval")
                        if word in element.text)
        elif tag in ("script", "link", "img", "iframe", "object", "embed", "image", "use", "base"):
            yield f"<{tag}>: a page of one file has none"
        for key, value in element.attrib.items():
            if key in ("src", "href", "srcset", "data") or key.startswith("on") or "url(" in value.replace(INSIDE, ""):
                yield f'<{tag} {key}="{value[:60]}">: leads elsewhere'
        if tag == "svg" and not (element.get("role") == "img" and element.get("aria-label")):
            yield "an <svg> without role and label"
        if tag == "table" and (element.find("caption") is None or not element.findall("thead/tr/th")):
            yield "a <table> without caption or header"
        if tag == "path" and re.search(r"nan|inf", element.get("d", "")):
            yield f'a path goes to {element.get("d")[:60]}'
    style = page.find("head/style").text
    yield from (f"the style sheet has {word}" for word in ("url(", "@import") if word in style)
    if page.get("lang") is None or page.find("head/title") is None or page.find("body/main") is None:
        yield "the page has no language, title or main part"


def main():
    content = Path(sys.argv[1]).read_bytes().decode("utf-8")
    try:
        found = list(mistakes(content, "--script" in sys.argv[2:]))
    except ElementTree.ParseError as error:
        found = [f"not well-formed: {error}"]
    for mistake in found:
        print(f"{sys.argv[1]}: {mistake}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
