"""Markdown as pages show it: how it looks, and that nothing hostile becomes part of a page."""

from __future__ import annotations

import random
import re
from html.parser import HTMLParser

import pytest
from pygments.lexers import get_lexer_by_name

from xgw.web.colouring import CLASSES, LANGUAGES, MOST_CHARACTERS, Colours
from xgw.web.markdown import MOST_CELLS, MOST_DEPTH, MOST_MARKS, markdown
from xgw.web.templating import environment
from xgw.web.words import SHOWN_BYTES

ELEMENTS = {
    *("p", "br", "hr", "h4", "h5", "h6", "blockquote", "ul", "ol", "li", "pre", "code", "span"),
    *("em", "strong", "s", "a", "i", "div", "table", "thead", "tbody", "tr", "th", "td"),
}
VOID = {"br", "hr"}


class Page(HTMLParser):
    """What a browser makes of it: elements with their attributes, the text, what is left open."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(str(html))
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data!r}")

    def handle_decl(self, decl: str) -> None:
        raise AssertionError(f"a declaration: {decl!r}")

    def handle_pi(self, data: str) -> None:
        raise AssertionError(f"an instruction: {data!r}")

    def of(self, name: str) -> list[dict[str, str | None]]:
        """The attributes of the elements of one name."""
        return [attributes for element, attributes in self.elements if element == name]


def assert_harmless(html: str) -> Page:
    page = Page(html)
    assert page.open == []
    for element, attributes in page.elements:
        assert element in ELEMENTS
        assert_known(element, attributes)
    return page


def assert_known(element: str, attributes: dict[str, str | None]) -> None:
    values = {name: value or "" for name, value in attributes.items()}
    classes = set(values.pop("class", "").split())
    assert classes <= {"span": CLASSES, "div": {"scrolls", "plain"}, "i": {"unseen"}}.get(
        element, set()
    )
    if element == "a":
        assert values.pop("href", "http://").startswith(("http://", "https://", "mailto:"))
        assert values.pop("target") == "_blank"
        assert values.pop("rel") == "noopener noreferrer nofollow"
    elif element == "i":
        assert re.fullmatch(r"(\\u[0-9a-f]{4}|\\U[0-9a-f]{8})+", values.pop("data-code"))
    elif element == "ol":
        assert values.pop("start", "1").isdigit()
    elif element in ("th", "td"):
        assert values.pop("align", "left") in ("left", "center", "right")
    elif element in ("pre", "div"):
        assert values.pop("tabindex", "0") == "0"
    assert values == {}


# -- what it looks like ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("Hello *there*, **you** ~~all~~.", "<p>Hello <em>there</em>, <strong>you</strong> "
         "<s>all</s>.</p>"),
        ("one\ntwo", "<p>one<br>\ntwo</p>"),
        ("# Title", "<h4>Title</h4>"),
        ("### Deeper", "<h6>Deeper</h6>"),
        ("###### Deepest", "<h6>Deepest</h6>"),
        ("- a\n- b", "<ul>\n<li>a</li>\n<li>b</li>\n</ul>"),
        ("3. a", '<ol start="3">\n<li>a</li>\n</ol>'),
        ("> said", "<blockquote>\n<p>said</p>\n</blockquote>"),
        ("`a < b`", "<p><code>a &lt; b</code></p>"),
        ("    a < b", '<pre tabindex="0"><code>a &lt; b\n</code></pre>'),
        ("```\na\n```", '<pre tabindex="0"><code>a\n</code></pre>'),
        ("a\n\n---", "<p>a</p>\n<hr>"),
    ],
)  # fmt: skip
def test_marks_become_elements(text: str, html: str) -> None:
    assert markdown(text).strip() == html


def test_code_is_coloured_by_classes_alone() -> None:
    shown = markdown("```python\nif 1 < 2:\n    print('<b>')\n```")
    assert '<span class="t-k">if</span>' in shown
    page = assert_harmless(shown)
    assert page.text == "if 1 < 2:\n    print('<b>')\n\n"
    assert page.of("b") == []


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_every_language_that_is_named_is_known(language: str) -> None:
    assert get_lexer_by_name(language)
    assert assert_harmless(markdown(f"```{language}\n<a> 'b' 1\n```")).text == "<a> 'b' 1\n\n"


@pytest.mark.parametrize("language", ["klingon", "", '"><script>', "python" * 40, "PYTHON\tx"])
def test_code_of_any_language_is_shown(language: str) -> None:
    assert assert_harmless(markdown(f"```{language}\nx = 1\n```")).text == "x = 1\n\n"


def test_code_that_would_take_long_stays_plain() -> None:
    assert Colours(0).of("x = 1", "python") == "x = 1"
    assert Colours().of("x = 1", "python") != "x = 1"
    long = "x\n" * MOST_CHARACTERS
    assert Colours().of(long, "python") == long


def test_a_table_scrolls_by_itself_and_keeps_its_alignment() -> None:
    page = assert_harmless(markdown("a | b\n-:|:-:\n1 | 2"))
    assert page.of("div") == [{"class": "scrolls", "tabindex": "0"}]
    assert page.of("td") == [{"align": "right"}, {"align": "center"}]


def test_links_lead_outside() -> None:
    page = assert_harmless(markdown("[a](https://x.test/?a=1&b=2) <https://y.test> <me@z.test>"))
    hrefs = [link["href"] for link in page.of("a")]
    assert hrefs == ["https://x.test/?a=1&b=2", "https://y.test", "mailto:me@z.test"]


@pytest.mark.parametrize(
    "target",
    [
        *(
            "/ui/sessions",
            "//evil.test",
            "?after=0",
            "#main",
            "javascript:alert(1)",
            "ftp://x.test",
        ),
        *(
            "JaVaScRiPt:alert(1)",
            "data:text/html,<script>",
            "vbscript:x",
            "&#106;avascript:alert(1)",
        ),
        *("java\tscript:alert(1)", "\x01javascript:alert(1)", "file:///etc/passwd", "tel:1"),
    ],
)
def test_no_link_leads_anywhere_else(target: str) -> None:
    for text in (
        f"[words]({target})",
        f"[words](<{target}>)",
        f"<{target}>",
        f"![words]({target})",
    ):
        page = assert_harmless(markdown(text))
        assert [link for link in page.of("a") if "href" in link] == []


def test_images_are_named_and_not_loaded() -> None:
    page = assert_harmless(markdown("![A *cat*](https://x.test/cat.png) ![](https://x.test/b.png)"))
    assert page.text.strip() == "image: A *cat* image: without a name"
    assert [link["href"] for link in page.of("a")] == [
        "https://x.test/cat.png",
        "https://x.test/b.png",
    ]


def test_what_defines_a_link_is_shown() -> None:
    assert assert_harmless(markdown("[a]: https://x.test 'hidden'")).text.strip() == (
        "[a]: https://x.test 'hidden'"
    )


def test_it_is_a_filter_of_the_templates() -> None:
    template = environment().from_string("{{ text|markdown }}")
    assert template.render(text="**a** <b>").strip() == "<p><strong>a</strong> &lt;b&gt;</p>"


# -- what would take long --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "*a* " + "x" * SHOWN_BYTES,
        "*a* " + "\u20ac" * (SHOWN_BYTES // 3),
        "*" * (MOST_MARKS + 1),
        "*a*\n" + "[" * MOST_MARKS,
        ">" * (2 * MOST_DEPTH) + " *a*",
        "".join("  " * level + "- *a*\n" for level in range(MOST_DEPTH)),
        "**a " * MOST_DEPTH + " a**" * MOST_DEPTH,
    ],
    ids=["long", "wide", "marks", "brackets", "quotes", "lists", "emphasis"],
)
def test_what_would_take_long_is_shown_as_it_is(text: str) -> None:
    page = assert_harmless(markdown(text))
    assert page.elements == [("div", {"class": "plain"})]
    assert page.text == text


def test_a_table_that_would_grow_far_beyond_its_text_is_text() -> None:
    wide = "|".join("abcdefghij" * 10) + "\n" + "|".join("-" * 100) + "\n"
    assert assert_harmless(markdown(wide + "1\n" * 10)).of("table") == [{}]
    page = assert_harmless(markdown(wide + "1\n" * (MOST_CELLS // 100)))
    assert page.of("table") == []
    assert page.text.startswith("a|b|c")


def test_tables_together_have_a_bound_too() -> None:
    table = "|".join("a" * 10) + "\n" + "|".join("-" * 10) + "\n" + "1\n" * 8 + "\n"
    shown = assert_harmless(markdown(table * 150))
    assert 0 < len(shown.of("table")) <= MOST_CELLS // 100


# -- what is hostile -------------------------------------------------------------------------------

HOSTILE = (
    "<script>alert(1)</script>",
    '<img src=x onerror="alert(1)">',
    "<svg/onload=alert(1)>",
    "<svg><script>alert(1)</script></svg>",
    "<math><mtext></p><style><!--</style><img src onerror=alert(1)>",
    '<iframe src="https://evil.test"></iframe>',
    "<style>body{display:none}</style>",
    '<p style="position:fixed">',
    '<hx-partial hx-target="#main" hx-swap="innerHTML">x</hx-partial>',
    '<div hx-get="/ui/" hx-trigger="load" id="main" class="prose" data-copy="x">',
    "<template><b>x</b></template>",
    "<!-- <b> -->",
    "<!doctype html>",
    "<?php echo 1 ?>",
    "<![CDATA[<b>]]>",
    "</div></main></body>",
    "<a href='javascript:alert(1)'>x</a>",
    "<form action=https://evil.test><input name=csrf>",
    "<base href=https://evil.test>",
    "<meta http-equiv=refresh content='0;url=https://evil.test'>",
    "<noscript><p title='</noscript><img src=x onerror=alert(1)>'>",
    "<" * 50,
    "<b",
    "&lt;script&gt;alert(1)&lt;/script&gt;",
    "&#60;script&#62;",
)
AROUND = (
    *(
        "{}",
        "# {}",
        "> {}",
        "- {}",
        "    {}",
        "```{}\nx\n```",
        "```html\n{}\n```",
        "`{}`",
        "**{}**",
    ),
    *(
        "[{}](https://x.test)",
        "[x]({})",
        "[x](<{}>)",
        '[x](https://x.test "{}")',
        "![{}](x)",
        "<{}>",
    ),
    *(
        "{}|a\n-|-\n{}|b",
        "a|{}\n-|-\n",
        "~~{}~~",
        "1. {}\n   - {}",
        "{}\n===",
        "\\{}",
        "[x]: {}\n[x]",
    ),
    *("javascript:{}", "[x](javascript:{})", "https://x.test/{}", "<https://x.test/{}>", "&{};"),
)


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("around", AROUND)
def test_nothing_hostile_becomes_part_of_the_page(hostile: str, around: str) -> None:
    assert_harmless(markdown(around.replace("{}", hostile)))


@pytest.mark.parametrize("hostile", HOSTILE[:21])
def test_hostile_words_are_read_as_words(hostile: str) -> None:
    assert assert_harmless(markdown(f"before {hostile} after")).text.strip() == (
        f"before {hostile} after"
    )


@pytest.mark.parametrize("seed", range(40))
def test_no_mixture_of_it_does(seed: int) -> None:
    chance = random.Random(seed)
    pieces = [
        *HOSTILE,
        *(around.replace("{}", chance.choice(HOSTILE)) for around in AROUND),
        *("\n", "\n\n", " ", "*", "_", "`", "```", "[", "](", ")", "|", "\n|-|-\n", "<", ">", "\\"),
        *('"', "'", "&", "\x00", "\ufeff", "\u202e", "\ud83d", "\r\n", "\t", "é", "🙂", "- ", "> "),
    ]
    for _ in range(15):
        text = "".join(chance.choices(pieces, k=chance.randrange(1, 30)))
        assert_harmless(markdown(text))
