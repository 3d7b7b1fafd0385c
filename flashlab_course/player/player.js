// Plays data.lanes in every root that waits for them. A lane is a list of slots (item, what of it moves), their first values,
// and for each step the slots that change; values are places in data.words.
(function (data) {
  const SET = {
    look: (element, value) => element.setAttribute("class", value),
    text: (element, value) => { element.textContent = value; },
    w: (element, value) => element.setAttribute("width", value),
  };

  function laneOf(element, lane) {
    const items = {};
    element.querySelectorAll("[data-i]").forEach((one) => { items[one.dataset.i] = one; });
    const shown = [], source = element.querySelector(".source");

    function valuesAt(step) {
      const values = lane.first.slice();
      for (let n = 1; n <= step; n++) {
        const changes = lane.steps[n];
        for (let c = 0; c < changes.length; c += 2) values[changes[c]] = changes[c + 1];
      }
      return values;
    }

    return function show(step) {
      valuesAt(step).forEach((value, slot) => {
        if (shown[slot] === value) return;
        shown[slot] = value;
        const [item, what] = lane.slots[slot];
        SET[what](items[item], data.words[value]);
      });
      const now = source && source.querySelector(".now");
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
    const last = data.ticks.length - 1;
    let at = data.start, timer = null;

    function show(tick) {
      at = Math.max(0, Math.min(last, tick));
      lanes.forEach((lane, n) => lane(data.ticks[at][n]));
      slider.value = at;
      output.textContent = `${at + 1} of ${last + 1}`;
      slider.setAttribute("aria-valuetext", `step ${output.textContent}`);
    }

    function next(direction, by) {
      if (by === "line") return at + direction;
      return direction > 0 ? data.tiles.find((tick) => tick > at) ?? last : data.tiles.findLast((tick) => tick < at) ?? 0;
    }

    function pause() {
      clearInterval(timer);
      timer = null;
      stage.classList.remove("playing");
      find(".play").setAttribute("aria-label", "Play");
      root.querySelectorAll(".said p").forEach((p) => p.setAttribute("aria-live", "polite"));
    }

    function go() {
      if (at === last) show(0);
      stage.classList.add("playing");
      find(".play").setAttribute("aria-label", "Pause");
      root.querySelectorAll(".said p").forEach((p) => p.setAttribute("aria-live", "off"));
      timer = setInterval(() => {
        if (!root.isConnected || at === last) pause();
        else show(next(1, unit.value));
      }, data.milliseconds[unit.value === "line" ? 0 : 1]);
    }

    const acts = {
      play: () => (timer === null ? go() : pause()),
      first: () => { pause(); show(0); },
      last: () => { pause(); show(last); },
      back: (event) => { pause(); show(next(-1, event.shiftKey ? "tile" : unit.value)); },
      on: (event) => { pause(); show(next(1, event.shiftKey ? "tile" : unit.value)); },
    };
    const keys = { " ": "play", ArrowLeft: "back", ArrowRight: "on", ArrowDown: "on", ArrowUp: "back", Home: "first", End: "last" };

    root.querySelectorAll("[data-do]").forEach((button) => button.addEventListener("click", acts[button.dataset.do]));
    slider.addEventListener("input", () => { pause(); show(Number(slider.value)); });
    unit.addEventListener("change", () => { if (timer !== null) { pause(); go(); } });
    stage.addEventListener("keydown", (event) => {
      const tag = event.target.tagName, act = keys[event.key];
      if (!act || event.ctrlKey || event.metaKey || event.altKey || tag === "SELECT" || (tag === "BUTTON" && event.key === " ")) return;
      event.preventDefault();
      event.stopPropagation();
      acts[act](event);
    });
    slider.max = last;
    show(at);
  }

  document.querySelectorAll(`[data-flashlab="${data.id}"]`).forEach((root) => { if (!root.flashlabPlayer) play(root); });
})
