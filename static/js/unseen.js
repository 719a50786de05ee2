/* Characters that make a text read as something else, drawn as xgw/web/unseen.py draws them: for the
   texts that grow. What writing may need is left in prose: what stands beside it may still come. */
(() => {
  "use strict";

  const MOST_DRAWN = 2000;
  const ALWAYS = "\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\xad\\u180e\\u200b\\u2028-\\u202e\\u2060-\\u206f\\ufeff\\ufff9-\\ufffb\\ud800-\\udfff";
  const run = (more) => new RegExp(`((?:(?!\\r\\n)[${ALWAYS}${more}]){1,8})`, "u");
  const LITERAL = run("\\u061c\\u200c-\\u200f\\u{e0000}-\\u{e0fff}"), PROSE = run("");

  const code = (character) => {
    const digits = character.codePointAt(0).toString(16);
    return digits.length <= 4 ? `\\u${digits.padStart(4, "0")}` : `\\U${digits.padStart(8, "0")}`;
  };

  function sign(characters) {
    const element = document.createElement("i");
    element.className = "unseen";
    element.dataset.code = [...characters].map(code).join("");
    element.textContent = characters;
    return element;
  }

  // The text in strings and elements, for the end of `place`; past so many all are strings.
  globalThis.xgwDrawn = (text, place) => {
    const parts = text.split(place.classList.contains("is-tool_arguments") ? LITERAL : PROSE);
    place._drawn = (place._drawn || 0) + (parts.length - 1) / 2;
    const draw = place._drawn <= MOST_DRAWN ? sign : (characters) => [...characters].map(code).join("");
    return parts.map((part, at) => (at % 2 ? draw(part) : part)).filter((part) => part !== "");
  };

  // The text at the end of `block`, which is of `place`: in its last piece unless that is long.
  globalThis.xgwAppend = (block, text, place, most) => {
    for (const part of xgwDrawn(text, place)) {
      const last = block.lastChild, isText = last && last.nodeType === Node.TEXT_NODE;
      if (isText && typeof part === "string" && last.length < most) last.appendData(part);
      else block.append(part);
    }
  };
})();
