"use strict";
// The theme: as the system has it, or as the reader chose; kept for all pages where the browser allows it.
(() => {
  const THEMES = ["auto", "light", "dark"], KEY = "orrery-theme";
  const kept = () => { try { return localStorage.getItem(KEY); } catch { return null; } };
  const keep = (theme) => { try { localStorage.setItem(KEY, theme); } catch { /* private windows keep nothing */ } };
  const set = (theme) => {
    document.documentElement.dataset.theme = theme;
    const button = document.getElementById("theme");
    if (button) { button.textContent = theme; button.setAttribute("aria-label", `Theme: ${theme}`); }
    document.dispatchEvent(new Event("themechange"));
  };
  set(THEMES.includes(kept()) ? kept() : "auto");
  document.addEventListener("DOMContentLoaded", () => {
    set(document.documentElement.dataset.theme);
    document.getElementById("theme").addEventListener("click", () => {
      const next = THEMES[(THEMES.indexOf(document.documentElement.dataset.theme) + 1) % THEMES.length];
      keep(next);
      set(next);
    });
  });
})();
