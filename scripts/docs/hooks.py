"""Steps of MkDocs that its plugins do not have."""


def on_page_markdown(markdown, page, **_):
    """Lets search find pages and the reference, but no copies of source files."""
    if page.file.src_uri.startswith("files/") or page.file.src_uri.endswith("_source.md"):
        page.meta["search"] = {"exclude": True}
    return markdown
