// The theme is set before the page is shown; all else waits for it.
const root = document.documentElement;
try { if (localStorage.theme) root.dataset.theme = localStorage.theme; } catch { /* storage is off */ }

addEventListener("DOMContentLoaded", () => {
  const button = document.getElementById("site-theme");
  button.hidden = false;
  button.onclick = () => {
    const dark = getComputedStyle(root).colorScheme === "dark" ||
      (!root.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
    root.dataset.theme = dark ? "light" : "dark";
    try { localStorage.theme = root.dataset.theme; } catch { /* storage is off */ }
  };
  const current = document.querySelector("nav.pages [aria-current]");
  if (current) current.closest("nav").scrollTop = current.offsetTop - 200;
  for (const box of document.querySelectorAll("pre, table")) if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  const form = document.querySelector("form[role=search]");
  if (!form) return; // the packages were missing
  form.hidden = false;
  const results = document.getElementById("site-results");
  const words = new URLSearchParams(location.search).get("q");
  if (results) {
    form.q.value = words;
    results.textContent = words ? "Searching…" : "Write words into the field above.";
    if (words) search(results, words).catch(() => results.textContent = "The search could not be loaded.");
  }
  if (document.querySelector("code.language-mermaid")) {
    const script = Object.assign(document.createElement("script"), { src: document.body.dataset.root + "mermaid.js" });
    script.onload = () => {
      mermaid.initialize({ startOnLoad: false, theme: "neutral", look: "classic", fontFamily: "system-ui, sans-serif" });
      mermaid.run({ querySelector: "code.language-mermaid" });
    };
    document.head.append(script);
  }
});

async function search(results, words) {
  const pagefind = await import(new URL("pagefind/pagefind.js", document.baseURI));
  const found = (await pagefind.search(words)).results;
  const pages = await Promise.all(found.slice(0, 20).map((result) => result.data()));
  const add = (parent, name, text) => parent.appendChild(Object.assign(document.createElement(name), { textContent: text }));
  results.replaceChildren();
  add(results, "p", `${found.length} page${found.length === 1 ? "" : "s"} for “${words}”`);
  for (const page of pages) {
    const link = add(add(results, "h2", ""), "a", page.meta.title);
    link.href = page.url;
    add(results, "p", "").innerHTML = page.excerpt; // escaped by pagefind, but for <mark>
  }
}
