// Keys for annotators. Without this file every page works as a plain form.
(() => {
  "use strict";

  // A page that the back button brings from the browser's memory may show an old answer.
  window.addEventListener("pageshow", (event) => {
    if (event.persisted) window.location.reload();
  });

  const form = document.getElementById("question");
  const start = document.getElementById("start");

  document.querySelectorAll(".keys").forEach((hint) => { hint.hidden = false; });

  const choose = (key) => {
    const found = form.querySelector(`input[data-key="${key}"]`);
    if (!found) return false;
    found.checked = true;
    found.focus();
    return true;
  };

  const rows = () => [...form.querySelectorAll("fieldset.rank")];
  const isRanked = (row) => row.querySelector("input:checked") !== null;

  // The row that has the focus; else the first without a rank.
  const rank = (key) => {
    const all = rows();
    const focused = all.find((row) => row.contains(document.activeElement));
    const row = focused || all.find((one) => !isRanked(one)) || all[0];
    const found = row.querySelector(`input[value="${key}"]`);
    if (!found) return false;
    found.checked = true;
    const next = all[all.indexOf(row) + 1];
    const target = next ? next.querySelector("input:checked") || next.querySelector("input") : null;
    (target || form.querySelector("button[type=submit]")).focus();
    return true;
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
    const typing = event.target.matches("input[type=text], summary");
    if (typing) return;
    const key = event.key.toLowerCase();
    if (!form) {
      if (key === "enter" && start && document.activeElement === document.body) start.click();
      return;
    }
    let done = false;
    if (key === "u") {
      const undo = document.getElementById("undo");
      if (undo) { undo.click(); done = true; }
    } else if (key === "s") {
      form.requestSubmit(document.getElementById("skip"));
      done = true;
    } else if (key === "enter") {
      if (!document.activeElement.matches("a, #skip")) {
        form.requestSubmit();
        done = true;
      }
    } else if (/^[0-9bn]$/.test(key)) {
      done = form.dataset.kind === "rank" ? rank(key) : choose(key === "n" ? "0" : key);
    }
    if (done) event.preventDefault();
  });

  // Sending twice does no harm, but a button that looks idle invites it.
  if (form) form.addEventListener("submit", () => form.setAttribute("aria-busy", "true"));
})();
