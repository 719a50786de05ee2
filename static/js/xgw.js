/* What the pages do by themselves: the socket's cursor, texts that grow, times, keys, copying.
   Everything can be read without this file. */
(() => {
  "use strict";

  const $ = (id) => document.getElementById(id);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  // -- the socket ------------------------------------------------------------------------------
  // The cursor goes into the URL of the next connection: after each message, since a page that
  // was hidden opens its socket again without asking, and before each connection.

  const live = () => document.querySelector("[data-live]");

  function pointAtCursor(connection) {
    const page = live();
    if (!page || !connection) return;
    const url = new URL(connection.url);
    url.searchParams.set("after", page.dataset.cursor);
    connection.url = url.href;
  }

  addEventListener("htmx:ws:before:connection", (event) => pointAtCursor(event.detail.connection));
  addEventListener("htmx:ws:after:connection", (event) => {
    // A page that was shown again while a retry was due would open a second socket.
    clearTimeout(event.detail.connection.timer);
    say("connected");
  });
  addEventListener("htmx:ws:close", (event) => {
    if (event.detail.reason === "closed" && event.detail.code !== 1000) say("waiting");
  });

  function say(state) {
    const sign = $("connection");
    if (!sign) return;
    sign.dataset.state = state;
    sign.textContent = state === "connected" ? "live" : "not connected, trying again";
  }

  addEventListener("htmx:ws:before:message:incoming", (event) => {
    const message = parsed(event.detail.message.data);
    if (!message) return;
    if (message.reload) { location.reload(); return; }
    reader.before();
  });

  addEventListener("htmx:ws:after:message:incoming", (event) => {
    const message = parsed(event.detail.message.data);
    if (!message) return;
    for (const piece of message.texts || []) grow(piece);
    const page = live();
    if (page && message.seq !== undefined) page.dataset.cursor = message.seq;
    pointAtCursor(event.detail.connection);
    settle();
  });

  function parsed(text) {
    try { return JSON.parse(text); } catch { return null; }
  }

  // -- texts that grow -------------------------------------------------------------------------
  // `at` counts characters (code points) from the beginning of the text; what is there already is
  // not added again: also where the whole text comes anew, after a connection was lost, what was
  // selected in it stays so. What does not follow on replaces all.

  const PIECE = 2000;

  function grow({ id, at, text }) {
    const place = $(id);
    if (!place) return;
    const known = Number(place.dataset.length || 0);
    let added = text;
    if (at > known) place.replaceChildren();
    else if (at < known) added = [...text].slice(known - at).join("");
    if (added) append(place, added);
    place.dataset.length = Math.max(at + [...text].length, known);
  }

  // A block for each few thousand characters, broken at a line's end, between words where no line
  // ends, anywhere where no word does: what a browser lays out anew for a further piece is the last
  // block alone, however long the text is.
  function append(place, text) {
    let block = place.lastElementChild || newBlock(place);
    block._length ??= block.textContent.length;
    let cut = block._length > PIECE ? text.indexOf("\n") : -1;
    if (cut < 0 && block._length > 4 * PIECE) cut = text.indexOf(" ");
    if (cut >= 0) {
      xgwAppend(block, text.slice(0, cut), place, PIECE);
      text = text.slice(cut + 1);
    }
    if (cut >= 0 || block._length > 6 * PIECE) block = newBlock(place);
    block._length += text.length;
    xgwAppend(block, text, place, PIECE);
  }

  function newBlock(place) {
    const block = place.appendChild(document.createElement("div"));
    block._length = 0;
    return block;
  }

  function settle() {
    for (const sign of all("[data-deleted]")) drop(sign);
    for (const entry of all("[data-hold]")) hold(entry);
    for (const row of all("[data-gone]")) leave(row);
    for (const list of all("[data-most]")) trim(list);
    reader.after();
  }

  // -- rows that come in under the pointer wait until it has gone --------------------------------

  function hold(entry) {
    const list = entry.parentElement, stands = standing(entry);
    if (stands) { rise(stands, entry); return; }
    if (list && list.matches(":hover")) {
      // Not `hidden`: that would go when the row is drawn again.
      entry.dataset.held = "";
      list.addEventListener("mouseleave", () => { delete entry.dataset.held; }, { once: true });
    }
    entry.removeAttribute("data-hold");
  }

  // The row that stands further down already, of one that came in on top.
  const standing = (row) => row.id && all(`[id="${CSS.escape(row.id)}"]`).find((one) => one !== row);

  // It goes to where the other one came in, but neither from under the pointer nor while it has the
  // focus or something in it is selected: a mark keeps its new place until then.
  function rise(row, entry) {
    const list = entry.parentElement, mark = document.createElement(entry.tagName);
    for (const earlier of all("[data-place-of]", list)) if (earlier.dataset.placeOf === row.id) earlier.remove();
    mark.dataset.placeOf = row.id;
    mark.hidden = true;
    entry.replaceWith(mark);
    settleRisen(list);
  }

  function settleRisen(list) {
    if (list.matches(":hover")) { list.addEventListener("mouseleave", () => settleRisen(list), { once: true }); return; }
    for (const mark of all("[data-place-of]", list)) {
      const row = $(mark.dataset.placeOf);
      if (row && isInUse(row)) continue;
      if (row && mark.nextElementSibling !== row) mark.replaceWith(row);
      else mark.remove();
    }
  }

  function isInUse(row) {
    const selection = getSelection();
    return row.contains(document.activeElement) || (!selection.isCollapsed && selection.containsNode(row, true));
  }

  addEventListener("focusout", (event) => {
    const list = event.target.closest?.("[data-row]")?.parentElement;
    if (list) requestAnimationFrame(() => settleRisen(list));
  });

  // A row that the list's filter does not want any more.
  function leave(row) {
    const list = row.parentElement;
    const go = () => { if (row.hasAttribute("data-gone")) row.remove(); };
    if (list && list.matches(":hover")) list.addEventListener("mouseleave", go, { once: true });
    else go();
  }

  // Rows of sessions that were deleted: only the page knows which they are.
  function drop(sign) {
    for (const id of sign.dataset.deleted.split(" ")) {
      for (const row of all("[data-row][data-session]")) if (row.dataset.session === id) row.dataset.gone = "";
    }
    sign.dataset.deleted = "";
  }

  // What has come in on top makes the last rows go; they are loaded again by whoever scrolls there.
  function trim(list) {
    const rows = all("[data-row]", list), most = Number(list.dataset.most), older = $("older");
    if (rows.length <= most || (older && document.scrollingElement.scrollTop > innerHeight)) return;
    for (const row of rows.slice(most)) row.remove();
    if (!older) return;
    const link = older.querySelector("a"), url = new URL(link.href);
    url.searchParams.set("cursor", rows[most - 1].dataset.cursor);
    link.href = url.href;
    older.setAttribute("hx-get", url.pathname + url.search);
    older.hidden = false;
  }

  // Older rows that are loaded may be on the page already, further up.
  addEventListener("htmx:after:swap", () => {
    const seen = new Set();
    for (const row of all("[data-most] > [data-row]:not([data-hold])")) {
      if (seen.has(row.id)) row.remove();
      seen.add(row.id);
    }
  });

  // -- times ---------------------------------------------------------------------------------------

  const UNITS = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];

  function ago(seconds) {
    for (const [unit, scale] of UNITS) {
      if (seconds >= scale) return `${Math.floor(seconds / scale)} ${unit} ago`;
      // Another machine's clock may be ahead.
      if (seconds <= -Math.max(scale, 60)) return `in ${Math.floor(-seconds / scale)} ${unit}`;
    }
    return "now";
  }

  function duration(ms) {
    if (ms < 1000) return `${Math.round(ms)} ms`;
    const s = ms / 1000;
    if (s < 100) return s < 10 ? `${s.toFixed(2)} s` : `${s.toFixed(1)} s`;
    const total = Math.round(s), minutes = Math.floor(total / 60), rest = total % 60;
    if (minutes < 60) return `${minutes} min ${String(rest).padStart(2, "0")} s`;
    return `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
  }

  function timer(ms) {
    const s = Math.floor(ms / 1000), two = (n) => String(n).padStart(2, "0");
    const h = Math.floor(s / 3600), m = Math.floor(s / 60) % 60;
    return h ? `${h}:${two(m)}:${two(s % 60)}` : `${two(m)}:${two(s % 60)}`;
  }

  function set(element, text) {
    if (element.textContent !== text) element.textContent = text;
  }

  function tick() {
    const now = Date.now();
    for (const element of all("[data-ago]")) set(element, ago((now - Date.parse(element.dateTime)) / 1000));
    for (const element of all("[data-since]")) set(element, duration(Math.max(0, now - Date.parse(element.dataset.since))));
    for (const element of all("[data-timer]")) set(element, timer(Math.max(0, now - Date.parse(element.dataset.timer))));
    for (const chart of all("[data-grows]")) stretch(chart, now);
  }

  // A waterfall that is still running: drawn for the time until `data-until`, it goes on to now.
  function stretch(chart, now) {
    const from = Date.parse(chart.dataset.from), until = Date.parse(chart.dataset.until);
    // The clock here may be behind the server's: no bar ends after the chart.
    const passed = Math.max(1, Math.max(now, until) - from);
    const share = Math.min(1, (until - from) / passed);
    scale(chart.querySelector(".scale svg"), passed / 1000);
    for (const part of all("[data-x]", chart)) {
      const x = part.dataset.x * share;
      const width = part.hasAttribute("data-open") ? 100 - x : part.dataset.w * share;
      if (part.tagName === "line") { part.setAttribute("x1", `${x}%`); part.setAttribute("x2", `${x + width}%`); }
      else { part.setAttribute("x", `${x}%`); part.setAttribute("width", `${Math.max(0.8, width)}%`); }
    }
  }

  // Between the moments of an axis, in seconds, as the server has them: round on a clock from 15 on.
  const HOUR = 3600;
  const STEPS = [
    0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5,
    10, 15, 30, 60, 120, 300, 600, 1200, 1800, HOUR, 2 * HOUR, 6 * HOUR, 12 * HOUR, 24 * HOUR,
  ];

  function roundUp(seconds) {
    const found = STEPS.find((step) => step >= seconds);
    if (found) return found;
    for (let scale = STEPS.at(-1); ; scale *= 10) {
      for (const factor of [1, 2, 5]) if (factor * scale >= seconds) return factor * scale;
    }
  }

  function moment(at) {
    if (at === 0) return "0";
    if (at < 1) return `${Math.round(at * 1000)} ms`;
    const [unit, length] = at < 120 ? ["s", 1] : at < 7200 ? ["min", 60] : ["h", HOUR];
    return `${Number((at / length).toPrecision(6))} ${unit}`;
  }

  // Round moments above the bars, as the server draws them.
  function scale(svg, seconds) {
    const step = roundUp(seconds / 4);
    const ticks = [];
    for (let at = 0; at / seconds < 0.96; at += step) ticks.push(at);
    while (svg.children.length > ticks.length) svg.lastChild.remove();
    ticks.forEach((at, n) => {
      const text = svg.children[n] || svg.appendChild(document.createElementNS(svg.namespaceURI, "text"));
      text.setAttribute("x", `${100 * at / seconds}%`);
      text.setAttribute("y", "12");
      set(text, moment(at));
    });
  }

  setInterval(tick, 500);

  // -- keys ------------------------------------------------------------------------------------

  const rows = () => all("[data-row]").filter((row) => row.offsetParent !== null);

  function move(by) {
    const found = rows();
    if (!found.length) return;
    const at = found.findIndex((row) => row.contains(document.activeElement));
    const next = found[Math.min(found.length - 1, Math.max(0, at < 0 ? (by > 0 ? 0 : found.length - 1) : at + by))];
    const link = next.matches("a[href]") ? next : next.querySelector("a[href]");
    if (link) { link.focus({ preventScroll: true }); next.scrollIntoView({ block: "nearest" }); }
  }

  function follow(selector) {
    const link = document.querySelector(selector);
    if (link) link.click();
    return Boolean(link);
  }

  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) {
      if (event.key === "k" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); $("find")?.focus(); }
      return;
    }
    const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
    if (typing) { if (event.key === "Escape") event.target.blur(); return; }
    if (document.querySelector("dialog[open]")) return;
    const acts = {
      "/": () => { const box = $("filter") || $("find"); box?.focus(); box?.select?.(); return Boolean(box); },
      "?": () => { $("help").showModal(); return true; },
      "j": () => { move(1); return true; },
      "k": () => { move(-1); return true; },
      "[": () => follow("a[rel~=prev]"),
      "]": () => follow("a[rel~=next]"),
      "{": () => follow("a[data-key='prev-error']"),
      "}": () => follow("a[data-key='next-error']"),
    };
    const act = acts[event.key] || (/^[1-8]$/.test(event.key)
      ? () => { const tab = all(".tabs a")[Number(event.key) - 1]; tab?.click(); return Boolean(tab); } : null);
    if (act && act()) event.preventDefault();
  });

  // Who comes back has the focus where they left it.
  const LEFT = "xgw-left-row";

  addEventListener("pagehide", () => {
    const row = document.activeElement.closest("[data-row]");
    if (row?.id) sessionStorage.setItem(LEFT, JSON.stringify([location.href, row.id]));
  });

  function comeBack() {
    const [page, id] = JSON.parse(sessionStorage.getItem(LEFT) || "[]");
    if (page !== location.href || performance.getEntriesByType("navigation")[0].type !== "back_forward") return;
    $(id)?.querySelector("a[href]")?.focus({ preventScroll: true });
  }

  // -- messages to an agent ----------------------------------------------------------------------
  // Sent without leaving the page, which shows live what comes of it; what was not taken stays.

  addEventListener("keydown", (event) => {
    const box = event.target.closest?.("[data-composer] textarea");
    if (!box || event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    box.form.requestSubmit();
  });

  // What cannot be done in place is told in the form, which keeps what was written, or on the page
  // where the form has gone meanwhile; else it is sent once more by the browser, which shows why.
  addEventListener("submit", async (event) => {
    const form = event.target;
    if (!form.matches("[data-in-place]") || !live()) return;
    event.preventDefault();
    if (form.hasAttribute("data-sending")) return;
    form.setAttribute("data-sending", "");
    const alert = form.querySelector("[role=alert]"), words = await send(form);
    form.removeAttribute("data-sending");
    if (alert) tell(form, alert, words);
    else if (words) form.submit();
  });

  function tell(form, alert, words) {
    const place = form.isConnected ? alert : document.querySelector("[data-told]");
    if (place) place.replaceChildren(...xgwDrawn(words, place));
    if (!form.isConnected) return;
    const box = form.querySelector("textarea, input[type=text]");
    if (words && box) { box.setAttribute("aria-invalid", "true"); box.focus(); }
    else if (box) box.removeAttribute("aria-invalid");
  }

  addEventListener("submit", async (event) => {
    const form = event.target, box = form.elements.message;
    // Where nothing new is shown the browser sends it, and the answer leads to where it is.
    if (!form.matches("[data-composer]") || !reader.follower()) return;
    event.preventDefault();
    if (form.hasAttribute("data-sending")) return;
    const sent = box.value;
    form.setAttribute("data-sending", "");
    refuse(form, box, await send(form));
    form.removeAttribute("data-sending");
    if (box.value === sent && !box.hasAttribute("aria-invalid")) box.value = "";
  });

  // Why a form was not taken, "" if it was.
  async function send(form) {
    try {
      const answer = await fetch(form.action, {
        method: "POST", body: new URLSearchParams(new FormData(form)), headers: { "HX-Request": "true" },
      });
      if (answer.ok) return "";
      if ((answer.headers.get("content-type") || "").startsWith("text/plain")) return await answer.text();
      return answer.status === 413 ? "The message is too long." : "It was not sent: reload the page and send it again.";
    } catch {
      return "It was not sent: there is no connection.";
    }
  }

  function refuse(form, box, words) {
    const alert = form.querySelector("[role=alert]");
    alert.replaceChildren(...xgwDrawn(words, alert));
    box.removeAttribute("aria-invalid");
    if (words) { box.setAttribute("aria-invalid", "true"); box.focus(); }
    else reader.toEnd();
  }

  // -- clicks ----------------------------------------------------------------------------------

  addEventListener("click", async (event) => {
    const copy = event.target.closest("[data-copy]");
    if (copy) {
      try { await navigator.clipboard.writeText(copy.dataset.copy); copy.textContent = "copied"; }
      catch { copy.textContent = "press Ctrl+C"; select(copy); }
      setTimeout(() => { copy.textContent = "copy"; }, 1500);
      return;
    }
    if (event.target.id === "new-entries") { reader.toEnd(); return; }
    // A whole row leads where its first link does, unless a text was selected in it.
    const row = event.target.closest("[data-row]");
    if (row && !event.target.closest("a, button, summary, input, label") && !String(getSelection())) {
      const link = row.querySelector("a[href]");
      if (link) link.click();
    }
  });

  function select(button) {
    const text = button.parentElement.querySelector("code") || button.previousElementSibling;
    if (text) getSelection().selectAllChildren(text);
  }

  addEventListener("DOMContentLoaded", () => { tick(); comeBack(); });
})();
