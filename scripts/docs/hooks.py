"""What MkDocs does besides its plugins."""


def on_page_markdown(markdown, page, **_):
    """Search finds pages and the reference, and no copies of source files."""
    if page.file.src_uri.startswith("files/") or page.file.src_uri.endswith("_source.md"):
        page.meta["search"] = {"exclude": True}
    return markdown
