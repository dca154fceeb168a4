// @ts-check
// Preferences in the browser's storage. Without storage they have no effect.

/** @param {string} name @returns {string | null} */
export function remembered(name) {
  try {
    return localStorage.getItem(`trainshed.${name}`);
  } catch {
    return null; // storage is switched off
  }
}

/** @param {string} name @param {string | null} value null forgets it */
export function remember(name, value) {
  try {
    if (value === null) localStorage.removeItem(`trainshed.${name}`);
    else localStorage.setItem(`trainshed.${name}`, value);
  } catch {
    return; // storage is switched off, or full: it is a convenience
  }
}

/** @returns {"light" | "dark" | "system"} */
export function theme() {
  const chosen = remembered("theme");
  return chosen === "light" || chosen === "dark" ? chosen : "system";
}

/** @param {"light" | "dark" | "system"} chosen */
export function setTheme(chosen) {
  remember("theme", chosen === "system" ? null : chosen);
  if (chosen === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
}
