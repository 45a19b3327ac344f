// Questions to the server: the one place where they are asked, and where its answers are understood.

import { askToLogIn, say } from "./notice.js";

/** What the server refuses, with the status of its answer and what it says can be done. */
export class Refused extends Error {
  /**
   * @param {number} status
   * @param {string} text
   * @param {string} [hint]
   */
  constructor(status, text, hint) {
    super(text);
    this.status = status;
    this.hint = hint;
  }
}

/**
 * Ask the server; where it no longer knows who asks, say so.
 * @param {string | URL} address
 * @param {RequestInit} [options]
 */
export async function request(address, options = {}) {
  const answer = await fetch(address, options);
  if (answer.status === 401) askToLogIn(say("You are no longer logged in"));
  return answer;
}

/**
 * Understand an answer in JSON; a refusal is an error with its reason.
 * @param {number} status
 * @param {string} text
 * @returns {any} what it holds
 */
export function understand(status, text) {
  let found = null;
  try {
    found = JSON.parse(text || "{}");
  } catch {
    // Whatever stands between us and the server answered.
  }
  if (status < 200 || status > 299) throw new Refused(status, found?.error ?? String(status), found?.hint);
  if (found === null) throw new TypeError("no answer in JSON");
  return found;
}

/**
 * Ask for data.
 * @param {string | URL} address
 * @param {RequestInit} [options]
 */
export async function fetchData(address, options = {}) {
  const answer = await request(address, { ...options, headers: { accept: "application/json", ...options.headers } });
  return understand(answer.status, await answer.text());
}

/**
 * Ask for a page; one that says nothing but what is wrong is an error.
 * @param {string | URL} address
 * @param {RequestInit} [options]
 */
export async function fetchPage(address, options = {}) {
  const answer = await request(address, { headers: { accept: "text/html" }, ...options });
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  if (answer.ok) return page;
  const banner = page.querySelector(".notice .banner");
  if (banner && answer.status === 401) askToLogIn(banner.textContent.trim());
  const notice = banner ?? page.querySelector(".notice h1");
  if (notice) throw new Refused(answer.status, notice.textContent.trim());
  return page;
}

/**
 * Of several questions only the last counts: each gives up the one before it.
 * @template {unknown[]} Asked
 * @template Answer
 * @param {(signal: AbortSignal, ...asked: Asked) => Answer} ask
 */
export function lastOf(ask) {
  let asking = new AbortController();
  return (/** @type {Asked} */ ...asked) => {
    asking.abort();
    asking = new AbortController();
    return ask(asking.signal, ...asked);
  };
}
