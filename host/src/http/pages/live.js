// Numbers move by themselves, and keys work in tables. Every page can be read, and everything done, without this.
"use strict";
(() => {
  const REST = 2000;
  const parts = () => document.querySelectorAll("[data-live][id]");
  let missed = 0;

  // Takes the parts that move from a fresh copy of this page. What is opened or has the focus stays as it is.
  const refresh = async () => {
    try {
      const answer = await fetch(location.href, { headers: { accept: "text/html" }, credentials: "same-origin" });
      if (!answer.ok) throw new Error(String(answer.status));
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      document.title = fresh.title;
      for (const part of parts()) {
        const next = fresh.getElementById(part.id);
        const busy = part.contains(document.activeElement) && document.activeElement !== document.body;
        if (!next || busy || next.innerHTML === part.innerHTML || part.querySelector("details[open]")) continue;
        part.innerHTML = next.innerHTML;
      }
      missed = 0;
    } catch {
      missed += 1;
    }
    document.body.classList.toggle("stale", missed > 1);
    plan();
  };

  // A host that does not answer is asked less often; a page that nobody sees asks nothing.
  const plan = () => setTimeout(() => (document.hidden ? plan() : refresh()), REST * Math.min(1 + missed, 15));
  if (parts().length > 0) plan();

  const rows = () => [...document.querySelectorAll("table.rows tbody a.row")];
  const step = (by) => {
    const all = rows();
    if (all.length === 0) return;
    const at = all.indexOf(document.activeElement);
    all[at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(Math.max(at + by, 0), all.length - 1)].focus();
  };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, [contenteditable]")) return;
    const keys = document.getElementById("keys");
    const search = document.getElementById("search");
    if (event.key === "/" && search) {
      event.preventDefault();
      search.focus();
    } else if (event.key === "j") step(1);
    else if (event.key === "k") step(-1);
    else if (event.key === "?" && keys && !keys.open) keys.showModal();
  });
})();
