// The texts of scripts in the language of the page.

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
