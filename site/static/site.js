// Predictions open answers, players have links to a step, and the page to play with chooses a recording.
const root = document.documentElement, all = (selector, within = document) => Array.from(within.querySelectorAll(selector));
root.classList.add("js");

// ---- predictions: a gate opens when all fields since the gate before it are filled
const kept = (name) => `${location.pathname} ${name}`, gates = new Map();
let asked = [];
for (const element of all(".predict input, .gate")) {
  if (element.matches("input")) asked.push(element);
  else { gates.set(element, asked); asked = []; }
}
const open = (gate) => gate.classList.add("open");
for (const [gate, fields] of gates) {
  gate.querySelector("button").addEventListener("click", () => open(gate));
  const look = () => { if (fields.every((field) => field.value.trim())) open(gate); };
  for (const field of fields) {
    field.value = localStorage.getItem(kept(field.name)) ?? "";
    field.addEventListener("change", () => { localStorage.setItem(kept(field.name), field.value); look(); });
  }
  if (fields.length) look();
}
all("form.predict").forEach((form) => form.addEventListener("submit", (event) => event.preventDefault()));

// One button opens everything on the page, for those who only read.
const closed = all("details.hide, details.admonition").filter((one) => !one.open);
if (gates.size || closed.length) {
  const button = Object.assign(document.createElement("button"), { className: "show-all", type: "button", textContent: "Show all answers and outputs" });
  button.addEventListener("click", () => { gates.forEach((_, gate) => open(gate)); closed.forEach((one) => { one.open = true; }); button.remove(); });
  document.querySelector(".bd-article h1")?.after(button);
}

// A link into what is hidden opens what hides it.
function uncover(element) {
  gates.forEach((_, gate) => { if (gate.compareDocumentPosition(element) & Node.DOCUMENT_POSITION_FOLLOWING) open(gate); });
  for (let one = element; one; one = one.parentElement) if (one.tagName === "DETAILS") one.open = true;
}

// ---- players: #player-2-17 is step 17 of the page's second player
const players = all(".flashlab-player");
players.forEach((player, n) => {
  const slider = player.querySelector("input[type=range]");
  if (!slider) return;
  const link = Object.assign(document.createElement("a"), { className: "player-link", textContent: "Link to this step" });
  const renew = () => { link.href = `#player-${n + 1}-${Number(slider.value) + 1}`; };
  ["pointerenter", "focus", "click"].forEach((event) => link.addEventListener(event, renew));
  renew();
  player.after(link);
});

function follow() {
  const [, n, step] = /^#player-(\d+)-(\d+)$/.exec(location.hash) ?? [];
  const target = n ? players[n - 1] : document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  if (!target.offsetParent) uncover(target);
  if (n) {
    const slider = target.querySelector("input[type=range]");
    target.closest(".recording")?.dispatchEvent(new Event("choose"));
    slider.value = step - 1;
    slider.dispatchEvent(new Event("input"));
  }
  target.scrollIntoView();
}

// ---- the page to play with
const recordings = all(".recording");
if (recordings.length) {
  const names = Object.keys(recordings[0].dataset), bar = Object.assign(document.createElement("div"), { className: "choices" });
  const selects = names.map((name) => {
    const select = document.createElement("select"), label = document.createElement("label");
    new Set(recordings.map((one) => one.dataset[name])).forEach((value) => select.add(new Option(value)));
    label.append(`${name} `, select);
    bar.append(label);
    return select;
  });
  const matches = (one) => names.map((name, n) => one.dataset[name] === selects[n].value);
  const show = (chosen) => {
    recordings.forEach((one) => one.classList.toggle("chosen", one === chosen));
    names.forEach((name, n) => { selects[n].value = chosen.dataset[name]; });
  };
  // Not every combination was recorded: what was chosen last counts, then as much of the rest as possible.
  selects.forEach((select, n) => select.addEventListener("change", () => {
    const fit = (one) => matches(one).reduce((sum, fits, m) => sum + fits * (m === n ? 10 : 1), 0);
    show(recordings.reduce((best, one) => (fit(one) > fit(best) ? one : best)));
  }));
  recordings.forEach((one) => one.addEventListener("choose", () => show(one)));
  recordings[0].before(bar);
  show(recordings[4]);
}

// ---- the race on the front page starts by itself, unless the reader wants no motion
const race = document.querySelector("#the-race .flashlab-player");
if (race && !matchMedia("(prefers-reduced-motion: reduce)").matches) {
  new IntersectionObserver((seen, observer) => {
    if (!seen.some((one) => one.isIntersecting)) return;
    observer.disconnect();
    race.querySelector(".play").click();
  }, { threshold: 0.3 }).observe(race);
}

addEventListener("hashchange", follow);
if (location.hash) follow();

// From a file a page may not fetch another, and so not show where in it the words were found.
if (location.protocol === "file:" && typeof DOCUMENTATION_OPTIONS === "object") DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
