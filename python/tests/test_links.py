"""Links of documents lead to files and headings."""

import re

from conftest import ROOT

LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)#?([^)\s]*)\)")


def anchors(text):
    """Anchors of the headings of a page, as forges and mdbook form them."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_of_documents_lead_to_files_and_headings():
    folders = ["*.md", "docs/**/*.md", "python/*.md", "fuzz/*.md", "crates/*/*.md", "paper/*.md"]
    pages = [page for folder in folders for page in ROOT.glob(folder)]
    links = [(page, *found) for page in pages for found in LINK.findall(page.read_text())]
    broken = []
    for page, target, anchor in links:
        path = page.parent / target if target else page
        if not path.exists() or anchor and anchor not in anchors(path.read_text()):
            broken.append(f"{page.relative_to(ROOT)}: {target}#{anchor}")
    assert len(links) > 100 and not broken, broken
