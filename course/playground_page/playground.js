// The page around the graphs: it feeds points and settings, and draws what comes back. It knows no equation.
import * as ort from "./ort/ort.wasm.bundle.min.mjs";

ort.env.wasm.numThreads = 1; // more would need headers that a plain server does not send
ort.env.wasm.wasmPaths = { wasm: new URL("./ort/ort-wasm-simd-threaded.wasm", import.meta.url).href };

const $ = (id) => document.getElementById(id);
const LETTERS = "ABC", LIMIT = 1.95, ARROW = 0.7, STRIDE = 0.04;
const START = [[0.9, 0.5], [-0.5, 1.1], [-1.1, 0.3], [0.3, -0.9], [1.2, -0.5], [-0.7, -0.9]];
const sessions = new Map();
let catalog, loss, settings, points, proxies, result;
let running = false, again = false, playing = false;

// ---- the arithmetic: a graph for each loss

/** Value and forces of a loss at settings, points [6][2] and proxies (flat). */
async function evaluate(entry, chosen, at, atProxies) {
  if (!sessions.has(entry.name)) {
    sessions.set(entry.name, ort.InferenceSession.create(`./models/${entry.name}.onnx`));
  }
  const session = await sessions.get(entry.name);
  const tensor = (values, dims) => new ort.Tensor("float32", Float32Array.from(values), dims);
  const feed = { points: tensor(at.flat(), [6, 2]) };
  for (const s of entry.settings) feed[s.name] = tensor([chosen[s.name]], []);
  for (const dims of entry.proxies) feed.proxies = tensor(atProxies, dims);
  const out = await session.run(feed);
  return session.outputNames.map((name) => Array.from(out[name].data, Number));
}

const defaults = (entry) => Object.fromEntries(entry.settings.map((s) => [s.name, s.default]));

/** Proxies around the circle: those of one class side by side. */
function firstProxies([dims]) {
  if (!dims) return [];
  const each = dims.reduce((a, b) => a * b) / 6;
  return Array.from({ length: 3 * each }, (_, i) => {
    const angle = (2 * Math.PI * (Math.floor(i / each) + 0.75 + 0.3 * ((i % each) / each))) / 3;
    return [Math.cos(angle), Math.sin(angle)];
  }).flat();
}

/** Compute the forces of the present state, once at a time, and show them. */
async function update() {
  if (running) { again = true; return; }
  running = true;
  try {
    do {
      again = false;
      const now = loss;
      const found = await evaluate(loss, settings, points, proxies);
      if (now === loss) { result = found; show(); } // the reader may have chosen another meanwhile
      else again = true;
    } while (again);
    $("status").textContent = "";
  } catch (error) {
    $("status").textContent = `This loss could not be computed: ${error.message}`;
  } finally { running = false; }
}

// ---- the handles: points, and proxies as diamonds

const handles = () => {
  const each = proxies.length / 6;
  return [
    ...points.map((at, i) => ({ at, owner: Math.floor(i / 2), name: `Point ${LETTERS[i >> 1]}${1 + (i % 2)}` })),
    ...Array.from({ length: proxies.length / 2 }, (_, i) => ({
      at: [proxies[2 * i], proxies[2 * i + 1]], owner: Math.floor(i / each), proxy: i,
      name: `Proxy ${LETTERS[Math.floor(i / each)]}${each > 1 ? 1 + (i % each) : ""}`,
    })),
  ];
};

function place(i, x, y) {
  const length = Math.hypot(x, y), bound = (v) => Math.max(-LIMIT, Math.min(LIMIT, v));
  const at = $("circle").checked && length > 1e-6 ? [x / length, y / length] : [bound(x), bound(y)];
  if (i < 6) points[i] = at;
  else proxies.splice(2 * (i - 6), 2, ...at);
}

function svg(tag, attributes, text) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  if (text) node.textContent = text;
  return node;
}

function makeHandles() {
  const nodes = handles().map((h, i) => {
    const g = svg("g", { class: `class${h.owner}${"proxy" in h ? " proxy" : ""}`, tabindex: 0, role: "button" });
    g.append(svg("circle", { class: "reach", r: 0.17 }));
    g.append("proxy" in h ? svg("path", { class: "shape", d: "M0-.13.13 0 0 .13-.13 0z" })
      : svg("circle", { class: "shape", r: 0.1 }));
    g.append(svg("text", {}, LETTERS[h.owner]));
    g.addEventListener("touchstart", (event) => event.preventDefault(), { passive: false }); // parts of a drawing have no touch-action
    g.addEventListener("pointerdown", (event) => { g.setPointerCapture(event.pointerId); g.focus(); });
    g.addEventListener("pointermove", (event) => {
      if (!g.hasPointerCapture(event.pointerId)) return;
      const box = $("plane").getBoundingClientRect();
      place(i, (4 * (event.clientX - box.left)) / box.width - 2, 2 - (4 * (event.clientY - box.top)) / box.height);
      update();
    });
    g.addEventListener("keydown", (event) => {
      const move = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
      if (!move) return;
      event.preventDefault();
      const [x, y] = handles()[i].at, far = event.shiftKey ? 0.2 : 0.05;
      place(i, x + far * move[0], y + far * move[1]);
      update();
    });
    return g;
  });
  $("handles").replaceChildren(...nodes);
}

// ---- what the reader sees

const short = (v) => (v === 0 || (Math.abs(v) >= 0.01 && Math.abs(v) < 1e4) ? Number(v.toPrecision(3)).toString() : v.toExponential(1));
const pairs = (flat) => Array.from({ length: flat.length / 2 }, (_, i) => [flat[2 * i], flat[2 * i + 1]]);
const allForces = () => [...pairs(result[1]), ...(result[2] ? pairs(result[2]) : [])];

function show() {
  const forces = allForces(), all = handles();
  const longest = Math.max(...forces.map((f) => Math.hypot(...f)));
  $("value").textContent = short(result[0][0]);
  $("longest").textContent = short(longest);
  $("arrows").replaceChildren(...all.flatMap((h, i) => {
    const [fx, fy] = forces[i].map((v) => (longest > 1e-9 ? (ARROW * v) / longest : 0));
    if (!(Math.hypot(fx, fy) > 0.02)) return [];
    const [x, y] = h.at;
    return [svg("line", { class: `class${h.owner}`, x1: x, y1: -y, x2: x + fx, y2: -y - fy, "marker-end": "url(#tip)" })];
  }));
  [...$("handles").children].forEach((g, i) => {
    const [x, y] = all[i].at;
    g.setAttribute("transform", `translate(${x} ${-y})`);
    g.setAttribute("aria-label", `${all[i].name}, x ${x.toFixed(2)}, y ${y.toFixed(2)}, force ${forces[i].map(short).join(", ")}`);
  });
  $("numbers").tBodies[0].replaceChildren(...all.map((h, i) => {
    const row = document.createElement("tr"), head = document.createElement("th");
    head.scope = "row"; head.textContent = h.name;
    row.append(head, ...[...h.at.map((v) => v.toFixed(2)), ...forces[i].map(short)].map((text) => {
      const cell = document.createElement("td"); cell.textContent = text; return cell;
    }));
    return row;
  }));
}

function settingControl(s) {
  const box = document.createElement("div"), label = document.createElement("label");
  const output = document.createElement("output"), input = document.createElement("input");
  const log = s.scale === "log", shown = (v) => (log ? Math.log(v) : v);
  const read = () => (log ? Math.exp(Number(input.value)) : Number(input.value));
  box.className = "setting";
  input.id = `setting-${s.name}`;
  Object.assign(input, { type: "range", min: shown(s.low), max: shown(s.high), step: "any" });
  input.value = shown(s.default);
  label.htmlFor = input.id;
  const tell = () => { output.textContent = short(settings[s.name]); input.setAttribute("aria-valuetext", output.textContent); };
  label.append(s.name.replaceAll("_", " "), output);
  input.addEventListener("input", () => { settings[s.name] = read(); tell(); update(); });
  box.append(label, input);
  tell();
  return box;
}

function choose(name) {
  loss = catalog.losses.find((entry) => entry.name === name) ?? catalog.losses[0];
  const gone = catalog.missing.find((entry) => entry.name === name);
  $("loss").value = loss.name;
  settings = defaults(loss);
  proxies = firstProxies(loss.proxies);
  $("summary").textContent = gone ? `${gone.title} cannot be shown here: ${gone.why}. In its place, ${loss.title}.` : loss.summary;
  $("settings").replaceChildren(...loss.settings.map(settingControl));
  const fixed = Object.entries(loss.fixed).filter(([, value]) => value !== null).map(([key, value]) => `${key} = ${JSON.stringify(value)}`);
  $("fixed").textContent = [loss.wraps && `Around ${loss.wraps}.`, fixed.length && `Fixed here: ${fixed.join(", ")}.`].filter(Boolean).join(" ");
  $("legend").textContent = `Circles are embeddings, two of each class A, B and C.${loss.proxies.length ? " Diamonds are proxies: drag them too." : ""} The dashed circle has radius 1. All arrows share one scale, set by the longest.`;
  makeHandles();
  return update();
}

function reset() {
  points = START.map((at) => [...at]);
  proxies = firstProxies(loss?.proxies ?? []);
  if ($("circle").checked) points.forEach((at, i) => place(i, ...at));
}

/** Move everything a little along its force; the longest arrow by the same length at each step. */
async function step() {
  if (!result) return;
  const forces = allForces(), longest = Math.max(...forces.map((f) => Math.hypot(...f)));
  if (longest < 1e-6) { play(false); return; }
  handles().forEach((h, i) => place(i, ...h.at.map((v, k) => v + (STRIDE * forces[i][k]) / longest)));
  await update();
}

async function play(on) {
  playing = on;
  $("play").setAttribute("aria-pressed", on);
  while (playing) {
    await step();
    await new Promise((done) => { setTimeout(done, 60); });
  }
}

function drawGrid() {
  const line = (v, across) => svg("line", across
    ? { x1: -2, x2: 2, y1: v, y2: v, class: v ? "" : "axis" } : { y1: -2, y2: 2, x1: v, x2: v, class: v ? "" : "axis" });
  const at = [-1.5, -1, -0.5, 0, 0.5, 1, 1.5];
  $("grid").replaceChildren(...at.map((v) => line(v, true)), ...at.map((v) => line(v, false)), svg("circle", { r: 1 }));
}

function fillPage() {
  const families = [...new Set([...catalog.losses, ...catalog.missing].map((entry) => entry.family))];
  $("loss").replaceChildren(...families.map((family) => {
    const group = document.createElement("optgroup");
    group.label = family;
    group.append(...catalog.losses.filter((e) => e.family === family).map((e) => new Option(e.title, e.name)));
    for (const { title } of catalog.missing.filter((e) => e.family === family)) {
      const option = new Option(`${title} (not here: see below)`);
      option.disabled = true;
      group.append(option);
    }
    return group;
  }));
  $("loss").disabled = false;
  const worst = Math.max(...catalog.losses.map((entry) => entry.difference));
  $("accuracy").textContent = ` ${catalog.losses.length} losses are here; the largest difference from PyTorch was ${worst.toExponential(0)} of the largest force.`;
  $("missing").replaceChildren(...catalog.missing.map(({ title, why }) => {
    const item = document.createElement("li");
    item.textContent = `${title} is missing: ${why}`;
    return item;
  }));
}

async function start() {
  document.body.classList.toggle("embed", location.search === "?embed"); // on a page of its own loss
  drawGrid();
  reset();
  if (typeof WebAssembly === "undefined") {
    $("status").textContent = "This browser lacks WebAssembly, which computes the forces. The atlas and the lessons show them as pictures.";
    return;
  }
  try {
    catalog = await (await fetch("./losses.json")).json();
  } catch {
    $("status").textContent = "The losses could not be loaded. Serve this folder (python -m http.server) instead of opening the file.";
    return;
  }
  fillPage();
  $("loss").addEventListener("change", (event) => { location.hash = event.target.value; });
  addEventListener("hashchange", () => choose(location.hash.slice(1)));
  $("circle").addEventListener("change", () => { handles().forEach((h, i) => place(i, ...h.at)); update(); });
  $("step").addEventListener("click", step);
  $("play").addEventListener("click", () => play(!playing));
  $("reset").addEventListener("click", () => { play(false); reset(); update(); });
  await choose(location.hash.slice(1));
}

window.playground = { evaluate, catalog: () => catalog, ready: start() };
