// The theme is set before the page is shown; all else waits for it.
const root = document.documentElement;
try { if (localStorage.theme) root.dataset.theme = localStorage.theme; } catch { /* storage is off */ }

addEventListener("DOMContentLoaded", () => {
  const button = document.getElementById("theme");
  button.hidden = false;
  button.onclick = () => {
    const dark = getComputedStyle(root).colorScheme === "dark" ||
      (!root.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
    root.dataset.theme = dark ? "light" : "dark";
    try { localStorage.theme = root.dataset.theme; } catch { /* storage is off */ }
  };
  const current = document.querySelector("nav.pages [aria-current]");
  if (current) current.closest("nav").scrollTop = current.offsetTop - 200;
  const form = document.querySelector("form[role=search]");
  if (form) {
    form.hidden = false;
    const results = document.getElementById("results");
    const words = new URLSearchParams(location.search).get("q");
    if (results && words) search(form, results, words);
  }
});

async function search(form, results, words) {
  form.q.value = words;
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
