// What every page has: light and dark, copying, forms that submit themselves, and pages that keep up to date.

const words = JSON.parse(document.getElementById("words").textContent);

// Say something in the language of the page; {gaps} are filled in.
export function say(text, gaps = {}) {
  return (words[text] ?? text).replace(/\{(\w+)\}/g, (gap, name) => gaps[name] ?? gap);
}

let toastTimer = 0;

let isLoggedOut = false;

// Ask the server; where it no longer knows who asks, say so, and stay with that.
export async function request(address, options = {}) {
  const answer = await fetch(address, options);
  if (answer.status === 401) askToLogIn(say("You are no longer logged in"));
  return answer;
}

function askToLogIn(text) {
  isLoggedOut = true;
  clearTimeout(toastTimer);
  const button = document.createElement("button");
  button.textContent = say("Log in");
  button.addEventListener("click", () => location.reload());
  const element = document.querySelector(".toast");
  element.replaceChildren(text, " ", button);
  element.hidden = false;
}

export function toast(text) {
  if (isLoggedOut) return;
  const element = document.querySelector(".toast");
  element.textContent = text;
  element.hidden = false;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => (element.hidden = true), 1800);
}

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without https, only the old way is left.
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const copied = document.execCommand("copy");
    area.remove();
    if (!copied) return toast(say("That did not work"));
  }
  toast(say("Copied"));
}

// Replace the parts of this page that differ in a newer version of it; everything else stays as it is.
export function replaceParts(newer, which = "[data-part]") {
  for (const part of document.querySelectorAll(which)) {
    const replacement = newer.getElementById(part.id);
    const unfolded = replacement?.querySelectorAll("details") ?? [];
    part.querySelectorAll("details").forEach((details, i) => unfolded[i]?.toggleAttribute("open", details.open));
    if (replacement && replacement.outerHTML !== part.outerHTML) {
      const focused = part.contains(document.activeElement) && document.activeElement.getAttribute("href");
      part.replaceWith(document.adoptNode(replacement));
      if (focused) replacement.querySelector(`a[href="${CSS.escape(focused)}"]`)?.focus({ preventScroll: true });
      document.dispatchEvent(new CustomEvent("part", { detail: document.getElementById(replacement.id) }));
    }
  }
}

// Get a page; one that says nothing but what is wrong is an error.
export async function fetchPage(address, options = {}) {
  const answer = await request(address, { headers: { accept: "text/html" }, ...options });
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const banner = answer.ok ? null : page.querySelector(".notice .banner");
  if (banner && answer.status === 401) askToLogIn(banner.textContent.trim());
  const notice = answer.ok ? null : banner ?? page.querySelector(".notice h1");
  if (notice) throw Object.assign(new Error(notice.textContent.trim()), { status: answer.status });
  return page;
}

// Say why a page could not be had; nobody asks for one that was given up for a newer one.
export function explain(error) {
  if (error.name !== "AbortError") toast(error.status ? error.message : say("The server does not answer"));
}

function keepUpToDate(main) {
  const interval = Number(main.dataset.live);
  if (!interval) return;
  let failures = 0;
  const ask = async () => {
    let again = interval;
    try {
      if (!document.hidden) {
        const newer = await fetchPage(location.href);
        // What was waited for is there, and has a page of its own.
        const { at } = newer.querySelector("main")?.dataset ?? {};
        if (at && at !== main.dataset.at) return location.replace(at);
        replaceParts(newer);
        failures = 0;
        if (!newer.querySelector("main")?.dataset.live) return;
      }
    } catch (error) {
      if (error.status < 500) return;
      failures += 1;
      if (failures === 3) explain(error);
      again = interval * Math.min(10, 2 ** failures);
    }
    setTimeout(ask, again);
  };
  setTimeout(ask, interval);
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-copy], [data-copy-from], [data-copy-link], [data-theme-toggle]");
  if (!button) return;
  if ("copy" in button.dataset) copy(button.dataset.copy);
  else if ("copyFrom" in button.dataset) copy(document.querySelector(button.dataset.copyFrom).textContent.trim() + "\n");
  else if ("copyLink" in button.dataset) copy(new URL(button.dataset.copyLink || location.href, location.href).href);
  else toggleTheme();
});

// What is shared is the view as it is now.
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-share]");
  if (link) link.search = new URLSearchParams({ view: location.pathname + location.search });
});

// A menu closes when something else is clicked, or with Escape.
document.addEventListener("click", (event) => closeMenus((menu) => !menu.contains(event.target)));
document.addEventListener("keydown", (event) => event.key === "Escape" && closeMenus(() => true));
function closeMenus(which) {
  for (const menu of document.querySelectorAll("details.menu[open]")) if (which(menu)) menu.open = false;
}

document.addEventListener("submit", (event) => {
  const back = event.target.closest("[data-language], [data-back]")?.elements.back;
  if (back) back.value = location.pathname + location.search;
});

document.addEventListener("change", (event) => {
  if (event.target.matches("[data-submit]")) event.target.form.requestSubmit();
});

// Copied numbers have all their digits, whatever is shown.
document.addEventListener("copy", (event) => {
  const selection = getSelection();
  if (selection.rangeCount !== 1 || selection.isCollapsed) return;
  const fragment = selection.getRangeAt(0).cloneContents();
  const numbers = fragment.querySelectorAll("data.num");
  const around = selection.getRangeAt(0).commonAncestorContainer;
  const single = numbers.length ? null : (around.nodeType === 1 ? around : around.parentElement).closest("data.num");
  if (single && selection.toString() === single.textContent) {
    event.clipboardData.setData("text/plain", single.value);
    event.preventDefault();
  } else if (numbers.length) {
    const holder = document.createElement("div");
    for (const number of numbers) number.textContent = number.value;
    for (const cell of fragment.querySelectorAll("td, th")) cell.append("\t");
    for (const line of fragment.querySelectorAll("tr, p, dd, li, .row")) line.append("\n");
    holder.append(fragment);
    event.clipboardData.setData("text/plain", holder.textContent.trim());
    event.preventDefault();
  }
});

function toggleTheme() {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  document.cookie = `firstdrift_theme=${root.dataset.theme}; path=/; max-age=31536000; samesite=lax`;
  document.dispatchEvent(new CustomEvent("theme"));
}

// What takes long to find out, such as whether dumps have changed, is asked for once the page is there.
async function checkLater() {
  const address = document.querySelector("[data-check]")?.dataset.check;
  if (address) replaceParts(await fetchPage(address), "[data-check]");
}

keepUpToDate(document.querySelector("main"));
checkLater().catch(explain);
