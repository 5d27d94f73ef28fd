// Numbers move by themselves, keys work in tables, and commands can be copied. Every page can be read, and everything done,
// without this.
"use strict";
(() => {
  const REST = 2000;
  const parts = () => [...document.querySelectorAll("[data-live][id]")];
  let missed = 0;

  // Says below the status line why the page is not up to date; nothing when it is.
  const tell = (sentence) => {
    const known = document.getElementById("stale");
    document.body.classList.toggle("stale", Boolean(sentence));
    if (known?.textContent === (sentence ?? "")) return;
    known?.remove();
    if (!sentence) return;
    const line = document.createElement("p");
    line.id = "stale";
    line.className = "status fault";
    line.setAttribute("role", "status");
    line.textContent = sentence;
    document.getElementById("status")?.after(line);
  };

  // Asks for the parts that have changed since, by their marks. What is opened or has the focus stays as it is.
  const refresh = async () => {
    try {
      const has = parts().map((part) => `${part.id}=${part.dataset.live}`).join(" ");
      const answer = await fetch(location.href, { headers: { "outbox-has": has }, credentials: "same-origin" });
      if (answer.redirected) {
        tell("This page is not up to date: the session has ended. Load the page again to log in.");
        return;
      }
      if (answer.status >= 500) throw new Error(String(answer.status));
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (fresh.title) document.title = fresh.title;
      for (const next of fresh.querySelectorAll("[data-live][id]")) {
        const part = document.getElementById(next.id);
        const busy = part?.contains(document.activeElement);
        if (!part || busy || part.querySelector("details[open]")) continue;
        part.innerHTML = next.innerHTML;
        part.dataset.live = next.dataset.live;
      }
      missed = 0;
      tell();
    } catch {
      missed += 1;
      if (missed > 1) tell("This page is not up to date: the host does not answer.");
    }
    plan();
  };

  // A host that does not answer is asked less often; a page that nobody sees asks nothing.
  const plan = () => setTimeout(() => (document.hidden ? plan() : refresh()), REST * Math.min(1 + missed, 15));
  if (parts().length > 0) plan();

  // "12 s ago" grows in a page that stays open, by the clock that wrote it.
  const main = document.getElementById("main");
  const apart = Date.parse(main?.dataset.now) - Date.now();
  const span = (s) => {
    if (s < 60) return `${s} s`;
    if (s < 3600) return `${Math.floor(s / 60)} min`;
    return s < 172800 ? `${Math.floor(s / 3600)} h` : `${Math.floor(s / 86400)} d`;
  };
  const age = () => {
    for (const time of main.querySelectorAll("time[datetime]")) {
      const seconds = Math.trunc((Date.now() + apart - Date.parse(time.dateTime)) / 1000);
      if (Number.isNaN(seconds)) continue;
      const said = seconds > 0 ? `${span(seconds)} ago` : seconds < 0 ? `in ${span(-seconds)}` : "just now";
      if (time.textContent !== said) time.textContent = said;
    }
  };
  if (!Number.isNaN(apart)) setInterval(age, 5000);

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

  // A button for each command that can be copied, where the browser lets a page copy.
  for (const command of navigator.clipboard ? document.querySelectorAll("pre[data-copy]") : []) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Copy";
    button.addEventListener("click", async () => {
      try {
        await navigator.clipboard.writeText(command.textContent);
        button.textContent = "Copied";
      } catch {
        getSelection()?.selectAllChildren(command);
        button.textContent = "Selected: press Ctrl-C";
      }
    });
    command.after(button);
  }
})();
