// @ts-check
// Sets the theme before the first paint, to avoid a flash. A plain script: modules run too late.
"use strict";
{
  let chosen = null;
  try {
    chosen = localStorage.getItem("trainshed.theme");
  } catch {
    chosen = null; // storage is switched off: follow the system
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
}
