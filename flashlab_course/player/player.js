// Plays data.lanes in every root that waits for them. A lane is a list of slots (item, what of it moves), and for each step the
// slots that change, each followed by its new value.
(function (data) {
  const SET = {
    look: (element, value) => element.setAttribute("class", value),
    text: (element, value) => { element.textContent = value; },
    w: (element, value) => element.setAttribute("width", value),
  };

  function laneOf(element, lane) {
    const source = element.querySelector(".source"), shown = [];

    return function show(step) {
      const values = [];
      for (const changes of lane.steps.slice(0, step + 1))
        for (let c = 0; c < changes.length; c += 2) values[changes[c]] = changes[c + 1];
      values.forEach((value, slot) => {
        if (shown[slot] === value) return;
        shown[slot] = value;
        const [item, what] = lane.slots[slot];
        SET[what](element.querySelector(`[data-i="${item}"]`), value);
      });
      const now = source.querySelector(".acts") ?? source.querySelector(".now");
      if (now && (now.offsetTop < source.scrollTop + 18 || now.offsetTop + 36 > source.scrollTop + source.clientHeight)) {
        source.scrollTop = now.offsetTop - source.clientHeight * 0.4;            // the pane alone: the page stays where it is
      }
    };
  }

  function play(root) {
    root.flashlabPlayer = true;
    root.innerHTML = data.html;
    const find = (selector) => root.querySelector(selector);
    const stage = find(".stage"), slider = find("input"), unit = find("select"), output = find("output");
    const lanes = Array.from(root.querySelectorAll(".lane"), (element, n) => laneOf(element, data.lanes[n]));
    const explain = find("[type=checkbox]");
    const last = data.ticks.length - 1, stops = root.querySelectorAll("[data-to]");
    let at = data.start, timer = null;

    function show(tick) {
      at = Math.max(0, Math.min(last, tick));
      lanes.forEach((lane, n) => lane(data.ticks[at][n]));
      slider.value = at;
      stops.forEach((button) => button.setAttribute("aria-current", Number(button.dataset.to) === at));
      output.textContent = `${at + 1} of ${last + 1}`;
      slider.setAttribute("aria-valuetext", `step ${output.textContent}`);
    }

    function next(direction, by) {
      if (by === "line") return at + direction;
      return direction > 0 ? data.tiles.find((tick) => tick > at) ?? last : data.tiles.findLast((tick) => tick < at) ?? 0;
    }

    function turn(on) {
      clearInterval(timer);
      timer = null;
      stage.classList.toggle("playing", on);
      find(".play").setAttribute("aria-label", on ? "Pause" : "Play");
      root.querySelectorAll(".said p").forEach((p) => p.setAttribute("aria-live", on ? "off" : "polite"));
      if (!on) return;
      if (at === last) show(0);
      timer = setInterval(() => {
        if (!root.isConnected || at === last) turn(false);
        else show(next(1, unit.value));
      }, unit.value === "line" ? 350 : 700);
    }

    const to = (tick) => { turn(false); show(tick); };
    const acts = {
      play: () => turn(timer === null),
      first: () => to(0),
      last: () => to(last),
      back: (event) => to(next(-1, event.shiftKey ? "tile" : unit.value)),
      on: (event) => to(next(1, event.shiftKey ? "tile" : unit.value)),
    };
    const keys = { " ": "play", ArrowLeft: "back", ArrowRight: "on", ArrowDown: "on", ArrowUp: "back", Home: "first", End: "last" };

    root.querySelectorAll("[data-do]").forEach((button) => button.addEventListener("click", acts[button.dataset.do]));
    stops.forEach((button) => button.addEventListener("click", () => to(Number(button.dataset.to))));
    slider.addEventListener("input", () => to(Number(slider.value)));
    explain?.addEventListener("change", () => stage.classList.toggle("quiet", !explain.checked));
    unit.addEventListener("change", () => { if (timer !== null) turn(true); });
    stage.addEventListener("keydown", (event) => {
      const tag = event.target.tagName, act = keys[event.key];
      if (!act || event.ctrlKey || event.metaKey || event.altKey || tag === "SELECT" || ((tag === "BUTTON" || event.target === explain) && event.key === " ")) return;
      event.preventDefault();
      event.stopPropagation();
      acts[act](event);
    });
    slider.max = last;
    show(at);
  }

  document.querySelectorAll(`[data-flashlab="${data.id}"]`).forEach((root) => { if (!root.flashlabPlayer) play(root); });
})
