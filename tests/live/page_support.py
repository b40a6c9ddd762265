"""What the tests of the live page share: looking at the API from within the page, and waiting."""

# Far longer than any machine needs.
PATIENCE_MS = 20_000


def api(page, path):
    """Returns a document of the API, requested by the page."""
    return page.evaluate("path => fetch(`api/v1/${path}`).then(answer => answer.json())", path)


def table_of(page, name):
    """Returns the document of one table."""
    return next(table for table in api(page, "tables")["tables"] if table["name"] == name)


def open_table(page, url, name):
    """Opens the details of a table, and waits until its items are listed."""
    page.goto(url)
    page.get_by_role("link", name=name, exact=True).first.click()
    page.locator(".item-list tbody button:visible, .items-panel .state strong:visible").first.wait_for()


def column_of(page, name):
    """Returns the section of a column of the opened item, scrolled into view and drawn."""
    section = page.locator(".column").filter(has=page.get_by_role("heading", name=name, exact=True))
    section.scroll_into_view_if_needed()
    page.wait_for_function("node => node.dataset.view !== undefined", arg=section.element_handle(), timeout=PATIENCE_MS)
    return section


def histogram_of(page, field):
    """Returns a histogram of the opened table. All are read when they come into view."""
    page.locator(".histograms-panel").scroll_into_view_if_needed()
    figure = page.locator(f"[data-histogram={field}]")
    figure.scroll_into_view_if_needed()
    return figure


def has_no_horizontal_scroll(page):
    return page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
