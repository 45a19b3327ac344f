// Before anything is painted: the choice between light and dark, if one was made.
const chosen = localStorage.getItem("theme");
if (chosen) document.documentElement.dataset.theme = chosen;
document.documentElement.classList.add("js");
