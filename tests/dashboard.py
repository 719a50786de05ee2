"""The dashboard as a browser without scripts sees it: cookies, redirects, forms, words."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser
from http.cookies import SimpleCookie
from urllib.parse import urlencode

from gateway_fixtures import Client, Reading

FORM = "application/x-www-form-urlencoded"
REDIRECTS = (301, 302, 303, 307, 308)
_SILENT = frozenset({"script", "style", "title"})
_VOID = frozenset({"br", "hr", "img", "input", "link", "meta", "rect"})


@dataclass
class Element:
    """One start tag."""

    tag: str
    attributes: dict[str, str]


class Page(HTMLParser):
    """An answer in HTML, taken apart: `text` is what stands there, `elements` all its tags."""

    def __init__(self, status: int, headers: list[tuple[str, str]], body: bytes, path: str) -> None:
        super().__init__(convert_charrefs=True)
        self.status, self.path, self.body = status, path, body
        self.headers = {name.lower(): value for name, value in headers}
        self.set_cookies = [value for name, value in headers if name.lower() == "set-cookie"]
        self.elements: list[Element] = []
        self.title = ""
        self._open: list[str] = []
        self._texts: list[str] = []
        self.feed(body.decode())
        self.close()
        self.text = re.sub(r"\s+", " ", "".join(self._texts)).strip()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(Element(tag, {name: value or "" for name, value in attrs}))
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if "title" in self._open:
            self.title += data
        if not _SILENT.intersection(self._open):
            self._texts.append(data)

    def all(self, tag: str, **attributes: str) -> list[Element]:
        """The tags of that name with these attributes."""
        wanted = attributes.items()
        return [e for e in self.elements if e.tag == tag and wanted <= e.attributes.items()]

    @property
    def links(self) -> list[str]:
        """Where its links lead."""
        return [e.attributes["href"] for e in self.all("a") if "href" in e.attributes]

    @property
    def fields(self) -> dict[str, str]:
        """The names of its fields and what they hold."""
        return {
            e.attributes["name"]: e.attributes.get("value", "")
            for e in self.all("input")
            if "name" in e.attributes
        }


@dataclass
class Browser:
    """Keeps cookies, sends forms as pages do; follows redirects unless told otherwise."""

    url: str
    cookies: dict[str, str] = field(default_factory=dict)

    def open(self, path: str, method: str = "GET", *, follow: bool = True, **headers: str) -> Page:
        """What is at `path`; `_` in a header's name stands for `-`."""
        return self._ask(method, path, None, follow, headers)

    def send(
        self,
        path: str,
        fields: dict[str, str],
        *,
        follow: bool = True,
        **headers: str,
    ) -> Page:
        """POST a form with these fields and the token that the browser's pages hold."""
        form = {"csrf": self.cookies.get("xgw_csrf", ""), **fields}
        sent = {"content_type": FORM, "Origin": self.url, **headers}
        return self._ask("POST", path, urlencode(form).encode(), follow, sent)

    def log_in(self, token: str) -> Page:
        """Open the login page, fill it in and send it."""
        page = self.open("/ui/login")
        return self.send("/ui/login", {**page.fields, "token": token})

    def _ask(
        self, method: str, path: str, body: bytes | None, follow: bool, headers: dict[str, str]
    ) -> Page:
        if self.cookies:
            pairs = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
            headers = {"Cookie": pairs, **headers}
        reading = Reading(Client(self.url).send(body, path, method, **headers))
        page = Page(reading.status, reading.all_headers, reading.rest().body, path)
        self._keep(page)
        if follow and page.status in REDIRECTS:
            return self.open(page.headers["location"])
        return page

    def _keep(self, page: Page) -> None:
        for line in page.set_cookies:
            for name, morsel in SimpleCookie(line).items():
                self.cookies.pop(name, None)
                if morsel["max-age"] != "0":
                    self.cookies[name] = morsel.value
