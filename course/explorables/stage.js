// What all explorables share: points to drag, a menu, sliders, numbers, a theme, and who computes.
//
// A module gives `drawing(settings)`; Python gives the settings. `compute` answers a question {choice, numbers, points}
// by {name: numbers}: in a notebook the kernel does, on the site an exported graph or the module's own closed form.

const LOOK = await fetch(new URL("look.css", import.meta.url)).then((reply) => reply.text());

const CSS = `
:host { display: block; container-type: inline-size; max-width: 56rem; margin: .6rem 0; }
.frame { display: grid; grid-template-columns: minmax(0, 1fr); gap: .5rem 1.75rem; padding: 1rem; border: 1px solid var(--line); border-radius: .6rem;
  background: var(--paper); color: var(--ink); font: 15px/1.45 system-ui, sans-serif; }
@container (min-width: 38rem) {
  .frame { grid-template-columns: minmax(0, 1fr) 15.5rem; padding: 1rem 1.4rem; }
  .panel { align-self: center; } .wide { grid-column: 1 / -1; }
}
svg { display: block; align-self: center; width: 100%; max-width: 31rem; margin: 0 auto; overflow: visible; user-select: none; -webkit-user-select: none; }
svg text { fill: var(--soft); font-size: 13px; text-anchor: middle; pointer-events: none; }
.handle text { stroke: var(--paper); stroke-width: 3px; stroke-linejoin: round; paint-order: stroke; }
.ring, .axis { fill: none; stroke: var(--line); stroke-width: 1.2; }
.spring { stroke-linecap: round; opacity: .88; } .pull { stroke: var(--pull); } .push { stroke: var(--push); }
.arrow { fill: var(--ink); stroke: var(--ink); stroke-width: 1.7; stroke-linejoin: round; }
.c0 { --own: var(--a); } .c1 { --own: var(--b); } .c2 { --own: var(--c); }
.handle { cursor: grab; outline: none; } .handle:active { cursor: grabbing; }
.handle .reach { fill: none; stroke: transparent; stroke-width: 44; stroke-linecap: round; }
.handle .dot { fill: var(--own, var(--ink)); stroke: var(--paper); stroke-width: 1.5; }
.handle .leader { stroke: var(--line); stroke-width: 1.2; }
.framed .dot { display: none; } .framed .halo { fill: var(--paper); stroke: var(--ink); stroke-width: 1.4; }
.handle:not(.framed) .halo { fill: transparent; } .handle:hover .halo { fill: var(--panel); }
.handle:focus-visible .halo { fill: var(--panel); stroke: var(--pull); stroke-width: 2.5; }
feFlood { flood-color: var(--ink); }
.value { display: flex; justify-content: space-between; align-items: baseline; gap: 1rem; margin: .3rem 0 0;
  border-top: 1px solid var(--line); padding-top: .5rem; }
.value output { font-size: 1.35rem; font-weight: 650; line-height: 1.2; }
.try { margin: 0; max-width: 46rem; font-size: 1.05em; text-wrap: pretty; } .said { min-height: 2.7em; }
.unseen { position: absolute; width: 1px; height: 1px; margin: 0; overflow: hidden; clip-path: inset(50%); }
.key { display: flex; flex-wrap: wrap; gap: 0 1.1rem; } .key i { display: inline-block; width: 1.4rem; height: .35rem;
  border-radius: .2rem; margin-right: .4rem; vertical-align: middle; background: var(--own); }
summary { color: var(--soft); font-size: .86rem; }
.tables { display: flex; flex-wrap: wrap; gap: .4rem 2.5rem; overflow-x: auto; align-items: start; }
`;

// ---- what modules draw with

export const rad = (degrees) => (degrees * Math.PI) / 180;
export const spot = (degrees, r = 100) => [r * Math.cos(rad(degrees)), -r * Math.sin(rad(degrees))];
/** A number as it is read: four digits, or what is nothing as 0. */
export const short = (v, digits = 4) => (Math.abs(v) < 5e-5 ? "0" : Number(v.toPrecision(digits)).toString()).replace("-", "−");
const clamp = (v, low, high) => Math.min(high, Math.max(low, v));

const DRAWN = new Set("svg g line path circle rect image text defs filter feFlood feComposite".split(" "));
export function node(tag, attributes = {}, ...children) {
  const made = DRAWN.has(tag) ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

/** An arrow from a place of the drawing by (dx, dy), all in its units; nothing where it would be too short to see. */
export function arrow([x, y], [dx, dy], from = 5.2) {
  const length = Math.hypot(dx, dy), head = Math.min(1, length / 14), tip = from + length;
  if (length < 1.5) return [];
  const d = `M${from} 0H${tip - 8 * head}M${tip} 0l${-10 * head} ${-4.6 * head}v${9.2 * head}z`;
  return [node("path", { class: "arrow", d, transform: `translate(${x} ${y}) rotate(${(Math.atan2(dy, dx) * 180) / Math.PI})` })];
}

/** Arrows along the circle of `circle()`: how strongly each point is turned, + counterclockwise; `unit` is drawn longest. */
export const turned = (turns, points, unit, longest = 46) => turns.flatMap((turn, i) => {
  const degrees = rad(points[i][0]), length = (longest * turn) / unit;
  return arrow(spot(points[i][0]), [-length * Math.sin(degrees), -length * Math.cos(degrees)]);
});
/** What is read out of such a point. */
export const turnedText = ({ turns }, i) => (Math.abs(turns[i]) < 5e-4 ? "no force"
  : `force ${short(Math.abs(turns[i]), 3)} ${turns[i] > 0 ? "counter" : ""}clockwise`);

/** `play` of points on a circle: gradient descent on the angles, with shorter steps for a point that was carried too far. */
export function follow(pace = 1.6) {
  let peak, paces, before;
  return {
    label: "Follow the forces",
    begin() { peak = 0; paces = null; },
    step({ turns }, { points }) {
      const most = Math.max(...turns.map(Math.abs));
      paces ??= turns.map(() => pace);
      peak = Math.max(peak, most);
      paces = paces.map((each, i) => (turns[i] * (before?.[i] ?? 0) < 0 ? each / 2 : Math.min(pace, each * 1.1)));
      before = turns;
      const steps = turns.map((turn, i) => (paces[i] * turn) / Math.max(peak / 20, most, 1e-9));
      return Math.max(...steps.map(Math.abs)) < 0.05 ? null : points.map(([degrees], i) => [degrees + steps[i]]);
    },
  };
}

/** A line of the key: a colored bar, and what it means. */
export const bar = (own, text) => node("span", {}, node("i", { style: `--own: ${own}` }), text);

// How a handle moves: where its numbers are drawn, which numbers a place has, what an arrow key adds, what is read out.
const DEGREES = 0.01;
/** Along a circle; one number, in degrees. Images stand beside their points, `beside` from the middle. */
export const circle = ({ r = 100, beside = 131 } = {}) => ({
  r, beside, low: 0, high: 360,
  place: ([degrees]) => spot(degrees, r),
  at: ([x, y]) => [(Math.atan2(-y, x) * 180) / Math.PI],
  nudge: ([degrees], right, up, far) => [degrees + (right + up) * (far ? 10 : 1)],
  round: ([degrees]) => [(Math.round((((degrees % 360) + 360) % 360) / DEGREES) * DEGREES) % 360].map((d) => Number(d.toFixed(2))),
  text: ([degrees]) => `${degrees.toFixed(0)} degrees`,
});
/** In the plane; two numbers (x, y), y upwards. `unit`: so long is 1 in the drawing; `low`, `high`: of both. */
export const plane = ({ unit = 100, low = -1.5, high = 1.5, step = 0.02 } = {}) => ({
  low, high,
  place: ([x, y]) => [unit * x, -unit * y],
  at: ([x, y]) => [x / unit, -y / unit],
  nudge: ([x, y], right, up, far) => [x + right * step * (far ? 10 : 1), y + up * step * (far ? 10 : 1)],
  round: (xy) => xy.map((v) => Number(clamp(v, low, high).toFixed(4))),
  text: ([x, y]) => `x ${x.toFixed(2)}, y ${y.toFixed(2)}`,
});
/** Along a line from [x, y] at `low` to [x, y] at `high`; one number. */
export const along = ({ from, to, low, high, step }) => {
  const [dx, dy] = [to[0] - from[0], to[1] - from[1]], length = dx * dx + dy * dy;
  return {
    low, high,
    place: ([v]) => { const part = (v - low) / (high - low); return [from[0] + part * dx, from[1] + part * dy]; },
    at: ([x, y]) => [low + ((high - low) * ((x - from[0]) * dx + (y - from[1]) * dy)) / length],
    nudge: ([v], right, up, far) => [v + (right + up) * step * (far ? 10 : 1)],
    round: ([v]) => [Number(clamp(v, low, high).toFixed(4))],
    text: ([v]) => short(v),
  };
};

/** Where images stand: beside their points, but not on each other. */
function apart(degrees, gap = 19) {
  const at = [...degrees], order = degrees.map((_, i) => i).sort((a, b) => degrees[a] - degrees[b] || a - b);
  for (let pass = 0; pass < 60 && order.length > 1; pass++) {
    order.forEach((i, k) => {
      const j = order[(k + 1) % order.length], around = k + 1 === order.length ? 360 : 0;
      const lack = Math.max(0, gap - (at[j] + around - at[i])) / 2;
      at[i] -= lack; at[j] += lack;
    });
  }
  return at;
}

/** Light or dark as the page around it is: JupyterLab, VS Code, Colab and the site say so, else the system does. */
function followTheme(el) {
  const look = () => {
    const { body, documentElement: html } = document;
    const said = [{ true: "light", false: "dark" }[body.dataset.jpThemeLight], body.dataset.vscodeThemeKind,
      body.dataset.theme, html.getAttribute("theme")].find((word) => /light|dark/.test(word ?? ""));
    el.style.colorScheme = said ? /light|dark/.exec(said)[0] : "";
  };
  const watch = new MutationObserver(look);
  for (const part of [document.body, document.documentElement]) watch.observe(part, { attributes: true });
  look();
  return () => watch.disconnect();
}

const calm = () => matchMedia("(prefers-reduced-motion: reduce)").matches;
const found = (answer, path) => path.split(".").reduce((part, key) => part[key], answer);

// ---- the stage

class Stage {
  constructor(el, compute, settings, drawing) {
    Object.assign(this, { el, compute, settings, drawing });
    const [first] = settings.choices;
    this.state = { choice: first.name, numbers: first.sliders.map(({ value }) => value), points: structuredClone(first.start) };
    Object.assign(this.state, settings.state);
    this.build();
    this.unwatch = followTheme(el);
    this.control();
    if (settings.first) this.receive(settings.first, this.state);
    else this.ask();
  }

  // -- the parts, made once
  build() {
    const { settings, drawing } = this, root = this.el.shadowRoot ?? this.el.attachShadow({ mode: "open" });
    const sheet = new CSSStyleSheet();
    sheet.replaceSync(LOOK + CSS + (drawing.css ?? ""));
    root.adoptedStyleSheets = [sheet];
    root.addEventListener("keydown", (event) => event.stopPropagation()); // JupyterLab would take the arrow keys
    this.hint = node("p", { class: "try wide" });
    this.menu = node("select", { id: "choice" }, ...settings.choices.map(({ name, title, why }) => {
      const option = new Option(why ? `${title} (not here: ${why})` : title, name);
      option.disabled = Boolean(why);
      return option;
    }));
    this.sliders = node("div");
    this.said = node("p", { class: "small said", id: "said" });
    this.live = node("p", { class: "unseen", role: "status" });
    this.tables = node("div", { class: "tables" });
    this.details = node("details", { class: "wide" }, node("summary", {}, "The numbers"), this.tables);
    this.readouts = Object.entries(settings.readouts).map(([path, label]) => [path, label, node("output", { class: "number", "data-of": path })]);
    this.frame = node("div", { class: "frame" }, this.hint, this.picture(), node("div", { class: "panel" },
      ...(settings.choices.length > 1 ? [node("label", { for: "choice" }, settings.menu), this.menu] : []), this.sliders,
      ...this.readouts.map(([, label, output]) => node("p", { class: "value" }, node("span", { class: "label" }, label), output)),
      this.said, this.buttons(), ...drawing.key.map((part) => node("p", { class: "small key" }, ...[part].flat()))),
    this.live, this.details,
    node("details", { class: "wide found" }, node("summary", {}, "What is there to find?"), node("p", { class: "try" }, settings.discover)));
    root.replaceChildren(this.frame);
    this.menu.addEventListener("change", () => this.choose(this.menu.value));
    this.details.addEventListener("toggle", () => this.draw());
  }

  picture() {
    const { drawing, settings } = this;
    this.handles = settings.points.map(({ name, label, src, kind = "" }, i) => {
      const { low, high } = drawing.move, size = src ? 38 : 0;
      const handle = node("g", { class: `handle ${kind} ${src && !drawing.move.beside ? "framed" : ""}`, role: "slider", tabindex: 0, "aria-label": name, "aria-valuemin": low, "aria-valuemax": high },
        node("path", { class: "reach" }), node("line", { class: "leader" }), node("circle", { class: "halo", r: src ? 23 : 11 }),
        node("image", { ...(src && { href: src }), width: size, height: size, filter: "url(#ink)" }),
        node("circle", { class: "dot", r: 5.2 }), node("text", {}, label ?? ""));
      this.hold(handle, i);
      return handle;
    });
    this.svg = node("svg", { viewBox: drawing.box ?? "-156 -156 312 312", role: "group", "aria-label": settings.alt, "aria-describedby": "said" },
      node("defs", {}, node("filter", { id: "ink" }, node("feFlood"), node("feComposite", { in2: "SourceAlpha", operator: "in" }))),
      drawing.below, ...this.handles);
    return this.svg;
  }

  buttons() {
    const { play } = this.drawing;
    this.player = node("button", { type: "button", class: "main" }, play?.label ?? "");
    const reset = node("button", { type: "button" }, "Reset");
    this.player.addEventListener("click", () => this.run(!this.playing));
    reset.addEventListener("click", () => {
      this.choose(this.state.choice);
      this.state.points = structuredClone(this.chosen().start);
      this.ask();
    });
    return node("div", { class: "buttons" }, ...(play ? [this.player] : []), reset);
  }

  /** Pointer, touch and keys of a handle. */
  hold(handle, i) {
    let held = [0, 0]; // from the pointer to the point, so that nothing jumps
    const pointed = ({ clientX, clientY }) => {
      const { x, y } = new DOMPoint(clientX, clientY).matrixTransform(this.svg.getScreenCTM().inverse());
      return [x, y];
    };
    handle.addEventListener("touchstart", (event) => event.preventDefault(), { passive: false }); // parts of a drawing have no touch-action
    handle.addEventListener("pointerdown", (event) => {
      handle.setPointerCapture(event.pointerId);
      handle.focus({ preventScroll: true, focusVisible: false });
      const at = pointed(event);
      held = this.drawing.move.place(this.state.points[i]).map((v, k) => v - at[k]);
      event.preventDefault();
    });
    handle.addEventListener("pointermove", (event) => {
      if (handle.hasPointerCapture(event.pointerId)) this.move(i, this.drawing.move.at(pointed(event).map((v, k) => v + held[k])));
    });
    handle.addEventListener("keydown", (event) => {
      const way = { ArrowUp: [0, 1], ArrowRight: [1, 0], ArrowDown: [0, -1], ArrowLeft: [-1, 0] }[event.key];
      if (!way) return;
      event.preventDefault();
      this.move(i, this.drawing.move.nudge(this.state.points[i], ...way, event.shiftKey));
    });
  }

  // -- asking, one question at a time: the latest counts
  ask() {
    this.again = true;
    this.frame.ariaBusy = "true";
    this.asking ??= this.asked().finally(() => { this.asking = null; this.frame.ariaBusy = "false"; });
    return this.asking;
  }
  async asked() {
    const slow = setTimeout(() => this.say("No answer yet: the picture shows the last one. In a notebook, run the cell again if the kernel was restarted."), 2500);
    try {
      while (this.again) {
        this.again = false;
        const question = structuredClone(this.state), answer = await this.compute(question);
        if (question.choice === this.state.choice) this.receive(answer, question);
      }
    } catch (error) {
      this.say(`The numbers could not be computed: ${error.message}`);
      this.run(false);
    } finally { clearTimeout(slow); }
  }
  receive(answer, question) {
    this.answer = answer;
    this.question = structuredClone(question);
    this.draw();
  }
  move(i, numbers) {
    this.run(false);
    this.state.points[i] = this.drawing.move.round(numbers);
    this.draw();
    this.ask();
  }
  say(text) { this.said.textContent = this.live.textContent = text; }

  // -- drawing
  draw() {
    if (this.hidden || !this.answer) return;
    const { answer, question, drawing, state } = this;
    drawing.draw(answer, state);
    this.handles.forEach((handle, i) => this.put(handle, i));
    for (const [path, , output] of this.readouts) output.textContent = short(found(answer, path));
    this.said.textContent = drawing.said(answer, state);
    clearTimeout(this.spoken); // who listens hears where a change ends, not every step of it
    this.spoken = setTimeout(() => {
      this.live.textContent = [...this.readouts.map(([, label, output]) => `${label} ${output.textContent}.`), this.said.textContent].join(" ");
    }, 700);
    if (this.details.open) this.tables.replaceChildren(...drawing.tables(answer, state).map((each) => this.table(...each)));
    this.frame.dataset.of = JSON.stringify(question); // to which question this is the answer
  }
  /** A handle at its place, and its image beside it. */
  put(handle, i) {
    const { move } = this.drawing, { points, settings } = { points: this.state.points, settings: this.settings };
    const [reach, leader, halo, image, dot, text] = handle.children, [x, y] = move.place(points[i]);
    let [u, v] = [x, y], [p, q] = [x, y];
    if (move.beside && settings.points[i].src) {
      const stand = apart(points.map(([degrees]) => degrees))[i];
      [u, v] = spot(stand, move.beside);
      if (Math.abs(stand - points[i][0]) > 2) [p, q] = spot(stand, move.beside - 21);
    }
    reach.setAttribute("d", `M${x} ${y}L${u} ${v + 0.01}`);
    const places = [[leader, { x1: x, y1: y, x2: p, y2: q }], [dot, { cx: x, cy: y }], [halo, { cx: u, cy: v }],
      [image, { x: u - 19, y: v - 19 }], [text, { x: u + 17, y: v + 15 }]];
    for (const [part, at] of places) for (const [key, number] of Object.entries(at)) part.setAttribute(key, number);
    handle.setAttribute("aria-valuenow", points[i][0]);
    handle.setAttribute("aria-valuetext", [move.text(points[i]), this.drawing.about?.(this.answer, i)].filter(Boolean).join(", "));
  }
  /** A table; a cell is a text, or ["path.of.the.answer"], whose number is shown. */
  table(caption, head, rows) {
    const cell = (tag, scope, of) => {
      const shown = Array.isArray(of) ? node("span", { "data-of": of[0] }, short(found(this.answer, of[0]))) : of;
      return node(tag, scope, shown);
    };
    return node("table", {}, node("caption", {}, caption),
      node("thead", {}, node("tr", {}, ...head.map((text) => (text ? cell("th", { scope: "col" }, text) : node("td"))))),
      node("tbody", {}, ...rows.map(([first, ...rest]) => node("tr", {}, cell("th", { scope: "row" }, first), ...rest.map((of) => cell("td", {}, of))))));
  }

  // -- controls
  chosen() { return this.settings.choices.find(({ name }) => name === this.state.choice); }
  control() {
    this.menu.value = this.state.choice;
    this.hint.textContent = this.chosen().question;
    this.sliders.replaceChildren(...this.chosen().sliders.flatMap((about, k) => this.slider(about, k)));
  }
  slider({ label, low, high, log, step }, k) {
    const to = (part) => (log ? low * (high / low) ** part : low + (high - low) * part);
    const from = (v) => (log ? Math.log(v / low) / Math.log(high / low) : (v - low) / (high - low));
    const slider = node("input", { id: `number-${k}`, type: "range", min: 0, max: 1, step: step ? step / (high - low) : "any" });
    const shown = node("output", { for: slider.id }), tell = () => {
      shown.textContent = short(this.state.numbers[k], 3);
      slider.setAttribute("aria-valuetext", shown.textContent);
    };
    slider.value = from(this.state.numbers[k]);
    slider.addEventListener("input", () => {
      this.run(false);
      this.state.numbers[k] = Number(to(Number(slider.value)).toPrecision(3));
      tell();
      this.ask();
    });
    tell();
    return [node("label", { for: slider.id }, label, shown), slider];
  }
  choose(name) {
    this.run(false);
    const before = JSON.stringify(this.chosen().start);
    this.state.choice = name; // the points stay where they are, unless this choice has places of its own
    if (JSON.stringify(this.chosen().start) !== before) this.state.points = structuredClone(this.chosen().start);
    this.state.numbers = this.chosen().sliders.map(({ value }) => value);
    this.drawing.begin?.();
    this.control();
    this.ask();
  }

  // -- playing: `drawing.play.step(answer, state)` gives the next points, or nothing where it ends
  async run(on) {
    if (on === Boolean(this.playing)) return;
    this.playing = on;
    const { play } = this.drawing;
    this.player.textContent = on ? "Pause" : play.label;
    if (on) play.begin?.();
    this.hidden = on && calm(); // where motion is unwelcome, a press shows where many steps lead
    for (let n = 1; this.playing && n <= (this.hidden ? 40 : 400); n++) {
      const next = play.step(this.answer, this.state);
      if (!next) break;
      this.state.points = next.map((numbers) => this.drawing.move.round(numbers));
      await this.ask();
      if (!this.hidden) await new Promise((done) => { setTimeout(done, 30); });
    }
    this.hidden = false;
    if (this.playing) await this.run(false);
    this.draw();
  }

  show(state, answer) {
    this.run(false);
    Object.assign(this.state, structuredClone(state));
    this.control();
    this.receive(answer, this.state);
  }
  stop() { this.run(false); clearTimeout(this.spoken); this.unwatch(); }
}

// ---- who computes

/** `export const mount = on(drawing)`: on a page, `compute` is given. */
export const on = (drawing) => (el, compute, settings) => new Stage(el, compute, settings, drawing(settings));

/** `export default widget(mount)`: in a notebook, questions are the widget's traits, and the kernel answers. */
export const widget = (mount) => ({
  render({ model, el }) {
    const KEYS = ["choice", "numbers", "points"];
    const now = () => Object.fromEntries(KEYS.map((name) => [name, model.get(name)]));
    const answers = (question) => JSON.stringify(model.get("answer").of) === JSON.stringify(KEYS.map((name) => question[name]));
    let asked = now();
    const compute = (question) => new Promise((done) => {
      const check = () => {
        if (!answers(question)) return;
        model.off("change:answer", check);
        done(model.get("answer"));
      };
      asked = question;
      model.on("change:answer", check);
      for (const name of KEYS) model.set(name, question[name]);
      model.save_changes();
      check();
    });
    const view = mount(el, compute, { ...model.get("settings"), state: now() });
    const changed = () => { if (!answers(asked) && answers(now())) { asked = now(); view.show(asked, model.get("answer")); } };
    model.on("change:answer", changed); // a later cell may move the points, too
    return () => { model.off("change:answer", changed); view.stop(); };
  },
});
