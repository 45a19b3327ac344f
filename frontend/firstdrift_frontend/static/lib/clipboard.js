// What is copied.

import { say } from "./language.js";
import { toast } from "./notice.js";

/**
 * Copy a text, and say so.
 * @param {string} text
 */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    if (!copyWithoutHttps(text)) return toast(say("That did not work"));
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
