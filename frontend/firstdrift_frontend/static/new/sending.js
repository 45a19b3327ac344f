// Uploads and the server: what it is asked, what it is sent, and which uploads it has from this browser.

import { Refused, fetchData, understand } from "../lib/http.js";

const ROUTE = "/api/v1/uploads";
const REMEMBERED = "firstdrift.uploads";
const NO_ROOM = 507;

/** @typedef {{id: string, side: string, name: string}} Remembered */

/** @returns {Remembered[]} the uploads that are not over */
export const remembered = () => JSON.parse(localStorage.getItem(REMEMBERED) ?? "[]");

/** @param {Remembered[]} list */
const keep = (list) => localStorage.setItem(REMEMBERED, JSON.stringify(list));

/** @param {Remembered} upload */
export const remember = (upload) => keep([...remembered(), upload]);

/** @param {string} id */
export const forget = (id) => keep(remembered().filter((one) => one.id !== id));

/** @param {number} time */
export const pause = (time) => new Promise((done) => setTimeout(done, time));

/**
 * Tell whether the server itself said no: what fails otherwise may go well later.
 * @param {unknown} error
 * @returns {error is Refused}
 */
export const isRefused = (error) => error instanceof Refused && (error.status < 500 || error.status === NO_ROOM);

/**
 * Say all of why something was refused.
 * @param {any} error
 */
export const reasonOf = (error) => [error.message, error.hint].filter(Boolean).join(". ");

/**
 * Ask for something about uploads.
 * @param {string} method
 * @param {string} path below that of uploads
 * @param {object} [options]
 * @param {unknown} [options.data]
 * @param {AbortSignal} [options.signal]
 */
export function ask(method, path, { data, signal } = {}) {
  if (!data) return fetchData(ROUTE + path, { method, signal });
  return fetchData(ROUTE + path, {
    method,
    signal,
    body: JSON.stringify(data),
    headers: { "content-type": "application/json" },
  });
}

/**
 * Send a piece of a file; `fetch` would not tell how much of it has been sent.
 * @param {string} path
 * @param {Blob} piece
 * @param {AbortSignal} signal
 * @param {(bytes: number) => void} sent
 */
export function put(path, piece, signal, sent) {
  return new Promise((done, failed) => {
    const request = new XMLHttpRequest();
    request.open("PUT", ROUTE + path);
    request.upload.onprogress = (event) => sent(event.loaded);
    request.onloadend = () => {
      try {
        if (!request.status) throw new TypeError("no answer");
        done(understand(request.status, request.responseText));
      } catch (error) {
        failed(error);
      }
    };
    signal.addEventListener("abort", () => request.abort(), { once: true });
    request.send(piece);
  });
}

const UNITS = ["B", "kB", "MB", "GB", "TB"];

/**
 * Write a number of bytes short.
 * @param {number} bytes
 */
export function amount(bytes) {
  const power = Math.min(UNITS.length - 1, Math.max(0, Math.floor(Math.log10(Math.max(bytes, 1)) / 3)));
  const value = bytes / 1000 ** power;
  return `${value.toFixed(power && value < 100 ? 1 : 0)} ${UNITS[power]}`;
}
