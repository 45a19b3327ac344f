// What a page says: its texts in the language of the page, and, in the line at the lower edge, what has just happened.

/** @type {Record<string, string> | undefined} */
let words;

/**
 * Say something in the language of the page; {gaps} are filled in.
 * @param {string} text as it is in English
 * @param {Record<string, string | number>} [gaps]
 */
export function say(text, gaps = {}) {
  words ??= /** @type {Record<string, string>} */ (JSON.parse(document.getElementById("words")?.textContent || "{}"));
  return (words[text] ?? text).replace(/\{(\w+)\}/g, (gap, name) => String(gaps[name] ?? gap));
}

const SHOWN = 1800; // ms

const notice = { timer: 0, isLoggedOut: false };

const line = () => /** @type {HTMLElement} */ (document.querySelector(".toast"));

/**
 * Say something for a moment.
 * @param {string} text
 */
export function toast(text) {
  if (notice.isLoggedOut) return;
  const element = line();
  element.textContent = text;
  element.hidden = false;
  clearTimeout(notice.timer);
  notice.timer = window.setTimeout(() => (element.hidden = true), SHOWN);
}

/**
 * Say that the server no longer knows who asks, and stay with that.
 * @param {string} text
 */
export function askToLogIn(text) {
  notice.isLoggedOut = true;
  clearTimeout(notice.timer);
  const button = document.createElement("button");
  button.textContent = say("Log in");
  button.addEventListener("click", () => location.reload());
  const element = line();
  element.replaceChildren(text, " ", button);
  element.hidden = false;
}

/**
 * Say why something could not be had; nobody asks for what was given up for something newer.
 * @param {any} error
 */
export function explain(error) {
  if (error.name !== "AbortError") toast(error.status ? error.message : say("The server does not answer"));
}

/**
 * Copy a text, and say so.
 * @param {string} text
 */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    if (!copyWithoutHttps(text)) return toast(say("Failed"));
  }
  toast(say("Copied"));
}

/** @param {string} text */
function copyWithoutHttps(text) {
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  const isCopied = document.execCommand("copy");
  area.remove();
  return isCopied;
}
