// The line at the lower edge in which a page says what has just happened.

import { say } from "./language.js";

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
