// What the admin's pages do with a script. Without this file every page works as well.
(() => {
  "use strict";

  // Arrow keys lead to the case before and the next one, as the links below a case do.
  const links = { ArrowLeft: "prev", ArrowRight: "next" };
  document.addEventListener("keydown", (event) => {
    const rel = links[event.key];
    if (!rel || event.ctrlKey || event.metaKey || event.altKey || event.shiftKey) return;
    if (event.target.matches("input, select, textarea, summary, [tabindex]")) return;
    const link = document.querySelector(`main a[rel="${rel}"]`);
    if (link) { event.preventDefault(); link.click(); }
  });

  // A form that takes its time says so, and is sent once.
  document.addEventListener("submit", (event) => {
    if (!event.target.matches("form[data-busy]")) return;
    event.target.setAttribute("aria-busy", "true");
    const button = event.target.querySelector("button[data-while]");
    button.textContent = button.dataset.while;
    button.disabled = true;
  });
  window.addEventListener("pageshow", (event) => {
    if (event.persisted) window.location.reload();
  });
})();
