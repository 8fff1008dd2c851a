// Keeps a page current: it asks the server for changes, and puts them into the document. Without it, the page is as
// complete as when it was loaded.
"use strict";
(() => {
  const body = document.body;
  const events = new URL(body.dataset.events, location.href);
  let have = body.dataset.have;
  let skew = Date.parse(body.dataset.now) - Date.now(); // the clock of the cluster, less that of this machine
  let state, source, timer, failures = 0, isOver = false;

  // A live region has to be in the document before its text changes.
  const region = (name) => {
    const made = document.createElement("p");
    made.setAttribute("role", "status");
    made.className = name;
    body.prepend(made);
    return made;
  };
  const announcement = region("announcement"); // for readers of the screen only
  const banner = region("banner"); // says why the page is not current
  const say = (where, text) => { if (where.textContent !== text) where.textContent = text; };

  function connect() {
    clearTimeout(timer);
    source?.close();
    source = undefined;
    if (isOver || document.hidden) return; // browsers limit the connections of all tabs
    events.searchParams.set("have", have);
    const stream = source = new EventSource(events);
    let pause;
    stream.addEventListener("page", (event) => {
      have = event.lastEventId;
      say(banner, "");
      update(JSON.parse(event.data));
    });
    stream.addEventListener("trouble", (event) => {
      say(banner, "This page is not current: " + event.data);
    });
    stream.addEventListener("later", (event) => { pause = Number(event.data); });
    stream.addEventListener("end", (event) => { end(event.data); });
    stream.onopen = () => {
      if (failures > 1) say(announcement, "Connected again.");
      failures = 0;
    };
    stream.onerror = () => {
      stream.close(); // the pauses of browsers differ
      if (stream !== source || isOver) return;
      if (pause === undefined) {
        failures++;
        pause = Math.min(500 * 2 ** failures, 15000);
        if (failures > 1) say(banner, "The connection to Runlevel is lost: trying again…");
      }
      timer = setTimeout(failures > 0 ? check : connect, pause);
    };
  }

  function end(reason) {
    isOver = true;
    source?.close();
    say(banner, reason);
  }

  // check loads the page again if the server does not know this browser any more: it then says how to log in.
  async function check() {
    try {
      const answer = await fetch(events, { method: "HEAD" });
      if (answer.status === 401) return location.reload();
      if (answer.status >= 400 && answer.status < 500) return end("This page does not follow changes: load it again.");
    } catch { /* it does not respond yet */ }
    connect();
  }

  function update(change) {
    skew = Date.parse(change.now) - Date.now();
    const focused = document.activeElement;
    for (const [id, html] of Object.entries(change.changed)) {
      const template = document.createElement("template");
      template.innerHTML = html;
      const wanted = template.content.firstElementChild;
      const existing = document.getElementById(id);
      if (existing) morph(existing, wanted);
      else document.getElementById("main").append(wanted);
    }
    const sections = change.sections.map((id) => document.getElementById(id)).filter(Boolean);
    arrange(document.getElementById("main"), [document.getElementById("title"), ...sections]);
    if (focused.isConnected && focused !== document.activeElement) focused.focus({ preventScroll: true });
    document.title = change.title;
    say(document.getElementById("title"), change.heading);
    if (state !== undefined && state !== change.state) say(announcement, change.state);
    state = change.state;
    showAges(true);
  }

  // arrange makes nodes the children of an element. Nodes in their place are not touched: in browsers without
  // moveBefore, a node that is moved loses its scroll position.
  function arrange(parent, nodes) {
    const kept = new Set(nodes);
    for (const child of [...parent.childNodes]) if (!kept.has(child)) child.remove();
    let next = parent.firstChild;
    for (const node of nodes) {
      if (node === next) next = next.nextSibling;
      else if (parent.moveBefore && node.isConnected) parent.moveBefore(node, next);
      else parent.insertBefore(node, next);
    }
  }

  // morph makes an element equal to another one, and keeps what the user did to it: an open part, text in an input, the
  // focus, a selection.
  function morph(element, wanted) {
    if (element.isEqualNode(wanted)) return;
    const isUsers = (name) => name === "open" && element.localName === "details";
    for (const { name } of [...element.attributes]) {
      if (!wanted.hasAttribute(name) && !isUsers(name)) element.removeAttribute(name);
    }
    for (const { name, value } of wanted.attributes) {
      if (element.getAttribute(name) !== value && !isUsers(name)) element.setAttribute(name, value);
    }
    const unused = new Set(element.childNodes);
    const find = (child) => { // the child with the ID, or else the next one of its kind
      for (const other of unused) {
        if (other.nodeName === child.nodeName && (other.id ?? "") === (child.id ?? "")) return other;
      }
    };
    const nodes = [...wanted.childNodes].map((child) => {
      const match = find(child);
      if (!match) return child;
      unused.delete(match);
      if (match.nodeType === Node.ELEMENT_NODE) morph(match, child);
      else say(match, child.textContent);
      return match;
    });
    arrange(element, nodes);
  }

  // age returns a time as text, as the server writes it.
  function age(seconds) {
    const two = (big, bigUnit, small, smallUnit) => big + bigUnit + (small ? small + smallUnit : "");
    const minutes = Math.floor(seconds / 60), hours = Math.floor(minutes / 60), days = Math.floor(hours / 24);
    if (seconds < 120) return seconds + "s";
    if (minutes < 10) return two(minutes, "m", seconds % 60, "s");
    if (minutes < 180) return minutes + "m";
    if (hours < 8) return two(hours, "h", minutes % 60, "m");
    if (hours < 48) return hours + "h";
    if (hours < 192) return two(days, "d", hours % 24, "h");
    if (days < 730) return days + "d";
    return days < 2920 ? two(Math.floor(days / 365), "y", days % 365, "d") : Math.floor(days / 365) + "y";
  }

  // showAges refreshes ages: those in seconds each time, others only if all are wanted.
  function showAges(all) {
    for (const time of document.querySelectorAll("time")) {
      if (!all && !time.textContent.endsWith("s")) continue;
      const seconds = Math.floor((Date.now() + skew - Date.parse(time.dateTime)) / 1000);
      if (!Number.isNaN(seconds)) say(time, age(Math.max(seconds, 0)));
    }
  }
  let ticks = 0, pinged = Date.now();
  setInterval(() => { // once a minute in a tab that is hidden for long
    if (!document.hidden) return showAges(++ticks % 30 === 0);
    if (isOver || Date.now() - pinged < 60000) return;
    pinged = Date.now();
    fetch(events, { method: "HEAD" }).catch(() => {}); // the page is still open
  }, 1000);

  document.addEventListener("visibilitychange", connect);
  addEventListener("pageshow", (event) => { if (event.persisted) connect(); });
  connect();
})();
