// @ts-check
// Sets the theme before anything is drawn, so that a dark room stays dark. A plain script: modules come too late.
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
