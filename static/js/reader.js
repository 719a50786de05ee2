/* Where the reader is: at the end, which the page follows, at the turn that was chosen, or wherever
   they have scrolled to, where they stay. Loaded before xgw.js, which tells what comes in. */
const reader = (() => {
  "use strict";

  const $ = (id) => document.getElementById(id);
  const scrollsItself = (place) => getComputedStyle(place).overflowY === "auto";

  // -- following the end -----------------------------------------------------------------------
  // The page stays at its end while its reader is there; once they scroll up it stays where it is
  // and counts what is new.

  let wasAtEnd = true, newBefore = 0;
  const follower = () => document.querySelector("[data-follow]:not([data-follow='off'])");

  // On a narrow screen the page scrolls, and the conversation ends before the page does: how far
  // below the window its end is, less than nothing where it can be seen.
  function below(place) {
    if (!scrollsItself(place)) return place.getBoundingClientRect().bottom - innerHeight;
    return place.scrollHeight - place.scrollTop - place.clientHeight;
  }

  function atEnd(place) {
    const far = below(place);
    return far < 48 && far > -innerHeight;
  }

  function before() {
    keepSelection();
    rowWas = chosenRow();
    rowWasShown = isShown(rowWas);
    const place = follower();
    if (!place) return;
    wasAtEnd = atEnd(place);
    newBefore = place.querySelectorAll(".entry").length;
  }

  function after() {
    selectAgain();
    if (chosenRow()?.id !== rowWas?.id && rowWasShown) showRowLater();
    const place = follower();
    if (!place) return;
    place.dataset.follow = "on";
    if (wasAtEnd) { toEnd(); return; }
    const added = place.querySelectorAll(".entry").length - newBefore;
    const pill = $("new-entries");
    if (pill && added > 0) {
      pill.dataset.count = Number(pill.dataset.count || 0) + added;
      pill.textContent = `${pill.dataset.count} new ↓`;
      pill.hidden = false;
    }
  }

  function toEnd() {
    const place = follower();
    if (!place) return;
    if (scrollsItself(place)) place.scrollTop = place.scrollHeight;
    else scrollBy(0, Math.max(0, below(place)));
    nothingNew();
  }

  function nothingNew() {
    const pill = $("new-entries");
    if (pill) { pill.hidden = true; pill.dataset.count = 0; }
  }

  // Who gets to the end without the button has seen what is new, too.
  addEventListener("scroll", () => {
    const place = follower(), pill = $("new-entries");
    if (place && pill && !pill.hidden && atEnd(place)) nothingNew();
    loadEarlier();
  }, { capture: true, passive: true });

  // -- the turn that was chosen ------------------------------------------------------------------

  let rowWas = null, rowWasShown = true;
  const list = () => document.querySelector(".turn-list");
  const chosenRow = () => document.querySelector(".turn-line.is-chosen");

  function isShown(row) {
    if (!row) return true;
    const { top, bottom } = row.getBoundingClientRect(), box = list().getBoundingClientRect();
    return top >= box.top && bottom <= box.bottom;
  }

  // Its beginning at the top of the conversation, or of the window where that is what scrolls.
  function showBlock(block) {
    const place = block.closest("[data-follow]"), top = block.getBoundingClientRect().top;
    if (scrollsItself(place)) place.scrollTop += top - place.getBoundingClientRect().top;
    else scrollBy(0, top - document.querySelector(".topbar").getBoundingClientRect().bottom - 8);
  }

  // In its list alone, at this height of the window if one is given: the page stays.
  function showRow(height) {
    const row = chosenRow(), box = row && list().getBoundingClientRect();
    if (!row) return;
    const at = row.getBoundingClientRect(), middle = box.top + (box.height - at.height) / 2;
    list().scrollTop += at.top - (height ?? middle);
  }

  // A new one is chosen as it begins; the list waits for a pointer that is over it.
  function showRowLater() {
    if (isShown(chosenRow()) || !scrollsItself(list())) return;
    if (list().matches(":hover")) list().addEventListener("mouseleave", () => showRow(), { once: true });
    else showRow();
  }

  // A row that is clicked leads to a page on which it is where it was.
  const CLICKED = "xgw-clicked-row";

  addEventListener("click", (event) => {
    const row = event.target.closest(".turn-line");
    if (row) sessionStorage.setItem(CLICKED, JSON.stringify([row.id, row.getBoundingClientRect().top]));
  });

  function clickedHeight() {
    const [id, height] = JSON.parse(sessionStorage.getItem(CLICKED) || "[]");
    sessionStorage.removeItem(CLICKED);
    return chosenRow()?.id === id ? height : undefined;
  }

  // -- earlier turns -----------------------------------------------------------------------------
  // They come in above what is read, as one scrolls up. The browser keeps the place only below the
  // very top, so it is left to this; where the page scrolls, its head is to be reached, too, and the
  // link has to be clicked.

  const NEAR = 400;
  let isLoading = false;
  const kept = [];

  function loadEarlier() {
    const link = document.querySelector("#more-turns a"), place = link?.closest("[data-follow]");
    if (!link || isLoading || !scrollsItself(place) || place.scrollTop > NEAR) return;
    isLoading = true;
    link.click();
  }

  function keep(place, pieces) {
    const scroller = place && scrollsItself(place) ? place : document.scrollingElement;
    const edge = place && scrollsItself(place) ? place.getBoundingClientRect().top : 0;
    const piece = [...document.querySelectorAll(pieces)].find((one) => one.getBoundingClientRect().bottom > edge);
    if (!piece) return;
    scroller.style.overflowAnchor = "none";
    kept.push([scroller, piece, piece.getBoundingClientRect().top]);
  }

  addEventListener("htmx:before:swap", (event) => {
    if (!event.target.closest?.("#more-turns")) return;
    rowWas = chosenRow();
    keep(document.querySelector("[data-follow]"), ".turn-block");
    if (list() && scrollsItself(list())) keep(list(), ".turn-line");
  });

  addEventListener("htmx:after:swap", () => {
    for (const [scroller, piece, top] of kept.splice(0)) {
      scroller.scrollTop += piece.getBoundingClientRect().top - top;
      requestAnimationFrame(() => { scroller.style.overflowAnchor = ""; });
      unchoose();
    }
  });

  // By itself each page of turns has one that is chosen.
  function unchoose() {
    for (const row of document.querySelectorAll(".turn-line.is-chosen")) {
      if (row === rowWas) continue;
      row.classList.remove("is-chosen");
      row.querySelector("a").removeAttribute("aria-current");
    }
  }

  addEventListener("htmx:finally:request", (event) => {
    if (event.detail.ctx.target?.id === "conversation") isLoading = false;
  });

  // -- what is selected in an answer that grows ----------------------------------------------------
  // At its end it is drawn anew, from its Markdown: what was selected is found there by its letters,
  // at the place that it had or, as marks are dropped, before that.

  let selected = null;
  const letters = (text) => text.replace(/[^\p{L}\p{N}]/gu, "");

  function keepSelection() {
    const selection = getSelection(), node = selection.anchorNode;
    const stream = (node?.nodeType === Node.TEXT_NODE ? node.parentElement : node)?.closest?.(".entry .stream.is-text");
    selected = null;
    if (!stream || selection.isCollapsed || !stream.contains(selection.focusNode)) return;
    const range = selection.getRangeAt(0), head = new Range();
    head.setStart(stream, 0);
    head.setEnd(range.startContainer, range.startOffset);
    const before = letters(String(head)).length, words = letters(String(range));
    if (words) selected = { stream, entry: stream.closest(".entry").id, before, words };
  }

  function selectAgain() {
    if (!selected || selected.stream.isConnected) return;
    const nodes = textsOf(`[id="${CSS.escape(selected.entry)}"] .prose`);
    const at = letters(nodes.map((node) => node.data).join("")).lastIndexOf(selected.words, selected.before);
    if (at < 0) return;
    const [first, from] = letterAt(nodes, at), [last, , to] = letterAt(nodes, at + selected.words.length - 1);
    getSelection().setBaseAndExtent(first, from, last, to);
  }

  function textsOf(selector) {
    const found = [];
    for (const place of document.querySelectorAll(selector)) {
      const walk = document.createTreeWalker(place, NodeFilter.SHOW_TEXT);
      while (walk.nextNode()) found.push(walk.currentNode);
    }
    return found;
  }

  // The text with this letter, and between which characters of it the letter stands.
  function letterAt(nodes, index) {
    for (const node of nodes) {
      let at = 0;
      for (const character of node.data) {
        index -= letters(character).length;
        if (index < 0) return [node, at, at + character.length];
        at += character.length;
      }
    }
    return [];
  }

  // -- a page is opened --------------------------------------------------------------------------

  addEventListener("DOMContentLoaded", () => {
    const place = document.querySelector("[data-follow]");
    if (!place) return;
    const block = $(place.dataset.chosen);
    if (block) showBlock(block);
    else if (place.dataset.follow === "start" && scrollsItself(place)) toEnd();
    if (list() && scrollsItself(list())) showRow(clickedHeight());
    loadEarlier();
  });

  return { before, after, toEnd, follower };
})();
