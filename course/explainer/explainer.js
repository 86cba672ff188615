// The page around a training: settings, what was seen, and words for it. The worker trains.
import { axes, chart, dark, directions, dot, histogram, node, pictures, plane } from "./draw.js";

const $ = (id) => document.getElementById(id);
const LAST = 1000; // a run pauses here
const FIRST = { data: "glyphs", loss: "triplet_semihard", classes: 8, dim: 3, lr: 0.003, sec: 0, seed: 1 };
const TRIPLET = "A triplet is a picture, a positive of its class, and a negative of another. Its loss: distance² to the positive − distance² to the negative + margin 0.2, not below 0. Distances are between directions, so norms may grow meanwhile.";
const PRESETS = [
  { title: "Semi-hard triplets: colors part", set: { loss: "triplet_semihard", margin: 0.2 }, stop: 300,
    watch: `${TRIPLET} Semi-hard: the nearest negative that is farther than the positive. Watch the colors part: the cosine of different classes falls, and Recall@1 rises to about a third; with 16 dimensions, to about a half. Raw pixels, the dashed line, compare hundreds of numbers, and find more on glyphs.` },
  { title: "Hard mining collapses", set: { loss: "triplet_hard", margin: 0.2 }, slow: 40, stop: 100,
    watch: `${TRIPLET} Hard: the farthest positive and the nearest negative, which is nearer, so the loss stands above 0.2, and the quickest way down is to shrink all distances: within some ten steps, shown slowly, every dot runs into one place. There both distances are 0, so the loss is exactly the margin, and the search finds noise. Then compare with semi-hard triplets.` },
  { title: "A scale too large stalls", set: { loss: "cosface", scale: 64, margin: 0.35, dim: 16 }, stop: 300,
    watch: "A softmax of cosines times 64 is certain of wrong answers, and pushes all pictures to one side: watch both cosines stay near 1, and the loss lie flat after its first fall. Then drag the scale to 4, and compare with the thin lines: the classes part within 150 steps (in 16 dimensions; in 3, not even at 4)." },
  { title: "SEC draws norms together", set: { loss: "triplet_semihard", margin: 0.2, sec: 1 }, stop: 300,
    watch: "The loss sees only directions; SEC pulls the length of each arrow to their mean. Watch the norms shrink to 1 or less and keep a standard deviation of some 0.2. Then take SEC away: by step 100 they grow to 4 to 8, and stray by 1.5 to 4. Yet relative to their mean they stray little less with SEC, and Recall@1 climbs more slowly." },
];

let catalog, worker, settings, frame = null, history = [], past = null, slow = 0, until = 0, chosen = 5, spots = [], view, bytes, picture, waiting = [], begun = 0, playing = false, unseen = false;
let yaw = 3.6, pitch = 0.35;
const loss = () => catalog.losses.find(({ name }) => name === settings.loss);
/** Which experiment the settings are; -1 if none. */
const experiment = () => PRESETS.findIndex(({ set }) => Object.entries({ ...FIRST, data: settings.data, seed: settings.seed, ...set }).every(([key, v]) => settings[key] === v));
const short = (v) => (v === 0 || (Math.abs(v) >= 0.001 && Math.abs(v) < 1e4) ? Number(v.toPrecision(3)).toString() : v.toExponential(1));
const percent = (v) => `${(100 * v).toFixed(0)} %`;

// ---- settings, which the address holds

function read() {
  const given = Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
  const next = { ...FIRST }, within = (key, low, high, whole) => {
    const v = Number(given[key]);
    if (key in given && Number.isFinite(v)) next[key] = Math.max(low, Math.min(high, whole ? Math.round(v) : v));
  };
  if (given.data in catalog.data) next.data = given.data;
  if (catalog.losses.some(({ name }) => name === given.loss)) next.loss = given.loss;
  if (!catalog.losses.some(({ name }) => name === next.loss)) next.loss = catalog.losses[0].name;
  for (const [key, choices] of [["classes", [4, 8, 16]], ["dim", [2, 3, 16]]]) if (choices.includes(Number(given[key]))) next[key] = Number(given[key]);
  within("lr", 1e-4, 0.032); within("sec", 0, 10); within("seed", 0, 999999, true);
  for (const s of catalog.losses.find(({ name }) => name === next.loss).settings) { next[s.name] = s.default; within(s.name, s.low, s.high); }
  return next;
}

/** Begin anew with some settings changed. */
function change(changed) {
  const next = { ...settings, ...changed };
  if (changed.loss) for (const s of loss0(changed.loss).settings) next[s.name] = changed[s.name] ?? s.default;
  const keys = [...Object.keys(FIRST), ...loss0(next.loss).settings.map(({ name }) => name)];
  settings = Object.fromEntries(keys.map((key) => [key, next[key]]));
  window.history.replaceState(null, "", `#${new URLSearchParams(Object.entries(settings).map(([k, v]) => [k, typeof v === "number" ? Number(v.toPrecision(4)) : v]))}`);
  settings = read();
  return restart();
}
const loss0 = (name) => catalog.losses.find((each) => each.name === name);

async function restart() {
  const own = ++begun; // what the run before still sends is not drawn
  if (history.length > 3 && JSON.stringify(frame.settings) !== JSON.stringify(settings)) past = { settings: frame.settings, history, norms: norms(frame) };
  history = []; view = null; slow = PRESETS[experiment()]?.slow ?? 0; play(false);
  const data = catalog.data[settings.data];
  const loaded = new Uint8Array(await (await fetch(`./${settings.data}.bin`)).arrayBuffer());
  if (own !== begun) return null;
  bytes = loaded;
  const first = catalog.sizes.classes * catalog.sizes.images, draw = pictures(bytes, data.channels, catalog.sizes.side);
  picture = (i) => draw(first + i);
  controls();
  return send("start", { settings, begun });
}

// ---- the worker

function send(kind, rest = {}) {
  worker.postMessage({ kind, ...rest });
  if (kind === "pace") return null;
  return new Promise((done, fail) => { waiting.push({ done, fail }); });
}
function heard({ data }) {
  if (data.kind === "error") {
    play(false);
    $("status").textContent = `The training stopped: ${data.message}`;
    return waiting.splice(0).forEach(({ fail }) => fail(new Error(data.message)));
  }
  if (data.begun !== begun) return null;
  frame = data; measure();
  if (!unseen) draw();
  if (playing && frame.step >= until) play(false);
  if (playing && slow && frame.step >= slow) { slow = 0; pace(); }
  return waiting.splice(0).forEach(({ done }) => done(frame));
}
function play(on) {
  if (on === playing) return;
  playing = on;
  const stop = PRESETS[experiment()]?.stop ?? LAST;
  if (on) until = frame.step < stop ? stop : LAST * Math.floor(frame.step / LAST + 1);
  pace(); mark();
  if (!on) say(true);
}

const pace = () => send("pace", { value: playing ? (slow ? 5 : Number($("pace").value)) : 0, until });
/** What runs, or ran: the button, and the experiment with its words. */
function mark() {
  const ran = playing || frame?.step > 0, pressed = ran ? experiment() : -1;
  $("go").textContent = playing ? "Pause" : ran ? "Go on" : "Train";
  $("go").setAttribute("aria-pressed", playing);
  [...$("presets").children].forEach((button, i) => button.setAttribute("aria-pressed", i === pressed));
  if (pressed >= 0 && $("watch").textContent !== PRESETS[pressed].watch) $("watch").textContent = PRESETS[pressed].watch;
}

// ---- what is measured of unseen images

const norms = ({ points }) => directionsOf(points).map((row) => Math.hypot(...row));
const directionsOf = (points) => Array.from({ length: points.length / catalog.sizes.dim }, (_, i) => Array.from(points.subarray(i * catalog.sizes.dim, (i + 1) * catalog.sizes.dim)));

/** The nearest images of image i by cosine: of another visit, where photographs have visits. */
function nearest(i, count) {
  const { ofEach } = catalog.sizes, half = (j) => j % ofEach < ofEach / 2, { visits } = catalog.data[settings.data];
  return [...frame.rows.keys()].filter((j) => j !== i && !(visits && half(j) === half(i)))
    .sort((a, b) => frame.cosines[i][b] - frame.cosines[i][a] || a - b).slice(0, count);
}
function measure() {
  const { sizes } = catalog, kind = (i) => Math.floor(i / sizes.ofEach);
  frame.rows = directions(frame.points, sizes.dim, settings.dim);
  frame.cosines = frame.rows.map((a) => frame.rows.map((b) => dot(a, b)));
  let same = 0, different = 0, hits = 0;
  const N = frame.rows.length, pairs = N * (sizes.ofEach - 1);
  frame.rows.forEach((_, i) => {
    frame.cosines[i].forEach((s, j) => { if (j !== i) { if (kind(i) === kind(j)) same += s; else different += s; } });
    hits += kind(nearest(i, 1)[0]) === kind(i);
  });
  Object.assign(frame, { same: same / pairs, different: different / (N * (N - sizes.ofEach)), recall: hits / N });
  history.push({ step: frame.step, value: frame.value, same: frame.same, different: frame.different, recall: frame.recall });
}

// ---- drawing

const turn = ([x, y, z]) => {
  const [a, b] = [Math.cos(yaw), Math.sin(yaw)], [c, s] = [Math.cos(pitch), Math.sin(pitch)];
  const u = a * x + b * z, w = a * z - b * x;
  return [u, c * y - s * w, s * y + c * w];
};
function draw() {
  if (!frame) return;
  const { sizes } = catalog, neighbors = nearest(chosen, 5);
  if (settings.dim === 16) view = axes(frame.rows, view ?? [0, 1].map((k) => frame.rows[0].map((_, i) => Number(i === k))));
  spots = plane($("plane"), { rows: frame.rows, dim: settings.dim, view, turn, ofEach: sizes.ofEach, picture, chosen, neighbors });
  $("step").textContent = frame.step;
  $("value").textContent = Number.isFinite(frame.value) ? short(frame.value) : "…";
  $("recall").textContent = percent(frame.recall);
  search(neighbors);
  curves();
  mark();
  say();
}
function search(neighbors) {
  const { names } = catalog.data[settings.data], kind = (i) => Math.floor(i / catalog.sizes.ofEach);
  const copy = (i) => { const made = node("canvas", { width: 16, height: 16, "aria-hidden": "true" }); made.getContext("2d").drawImage(picture(i), 0, 0); return made; };
  $("found").replaceChildren(node("figure", { class: "query" }, copy(chosen), node("figcaption", {}, "query")),
    ...neighbors.map((j) => {
      const right = kind(j) === kind(chosen);
      return node("figure", { class: right ? "right" : "wrong", title: names[kind(j)] }, copy(j), node("figcaption", {}, `${right ? "✓" : "✗"} ${frame.cosines[chosen][j].toFixed(2)}`));
    }));
  const right = neighbors.filter((j) => kind(j) === kind(chosen)).length;
  $("found").setAttribute("role", "img");
  $("found").setAttribute("aria-label", `Query: ${names[kind(chosen)]}. ${right} of its five nearest neighbors are of its class: ${neighbors.map((j) => names[kind(j)]).join(", ")}.`);
}
/** The run before by its loss, or by the settings that differ. */
const differs = () => (past.settings.loss === settings.loss ? Object.keys(settings).filter((key) => past.settings[key] !== settings[key]).map((key) => `${key} ${typeof settings[key] === "number" ? short(past.settings[key]) : past.settings[key]}`).join(", ") || "the same settings" : loss0(past.settings.loss).title);
function curves() {
  const of = (list, key) => list.map((at) => [at.step, key === "recall" ? 100 * at[key] : at[key]]);
  const series = (list) => ({
    recall: [{ name: "this network", tone: "a", values: of(list, "recall") }],
    cosine: [{ name: "same class", tone: "a", values: of(list, "same") }, { name: "different classes", tone: "b", values: of(list, "different") }],
    value: [{ name: "", tone: "a", values: of(list, "value") }],
  });
  const now = series(history), old = series(past?.history ?? []), lines = Object.fromEntries(Object.entries(catalog.data[settings.data].lines).map(([name, v]) => [name, 100 * v]));
  $("charts").replaceChildren(node("p", { class: "small" }, ...(past ? [node("span", { class: "key past" }, `the run before: ${differs()}`)] : [])),
    chart("Recall@1, %", now.recall, old.recall, lines, [0, 100]),
    chart("Mean cosine", now.cosine, old.cosine, {}, [Math.min(0, ...history.map((at) => at.different)), 1]),
    chart("Loss of each batch", now.value, old.value, {}, [0]),
    histogram("Norms (lengths of the arrows)", norms(frame), past?.norms ?? []));
}

let spoken = 0;
/** The state in words; who listens hears it at a pause, and every few seconds meanwhile. */
function say(now = false) {
  if (!frame) return;
  const { sizes } = catalog, { same, different, recall, step } = frame, best = Object.entries(catalog.data[settings.data].lines).map(([name, v]) => `${name} ${percent(v)}`).join(", ");
  let state = "The classes part slowly.";
  if (!Number.isFinite(frame.value) && step > 0) state = "The loss is no longer a number: the learning rate is too high.";
  else if (different > 0.98) state = recall < 2 / sizes.unseen ? "Collapsed: all images point the same way, and the nearest neighbor is chance." : "All images point nearly the same way: what is left between them is small.";
  else if (step === 0) state = "Random weights: nothing is learned yet.";
  else if (same - different > 0.25) state = "Images of one class point more alike than those of different classes.";
  $("said").textContent = `${state} Recall@1 ${percent(recall)} (${best}, chance about ${percent(1 / sizes.unseen)}). Mean cosine ${same.toFixed(2)} within a class, ${different.toFixed(2)} between classes.`;
  if (now || performance.now() - spoken > 6000) { spoken = performance.now(); $("live").textContent = `Step ${step}. ${$("said").textContent}`; }
}

// ---- controls

function slider(s) {
  const log = s.scale === "log", out = node("output"), input = node("input", { type: "range", id: `setting-${s.name}`, min: log ? Math.log(s.low) : s.low, max: log ? Math.log(s.high) : s.high, step: "any" });
  const value = () => (log ? Math.exp(Number(input.value)) : Number(input.value));
  input.value = log ? Math.log(settings[s.name]) : settings[s.name];
  const tell = (v) => { out.textContent = short(v); input.setAttribute("aria-valuetext", out.textContent); };
  tell(settings[s.name]);
  input.addEventListener("input", () => tell(value()));
  input.addEventListener("change", () => again({ [s.name]: value() }));
  return [node("label", { for: input.id }, s.name.replaceAll("_", " "), out), input];
}
function controls() {
  for (const key of ["data", "loss", "classes", "dim", "seed"]) $(key).value = settings[key];
  $("lr").value = Math.log10(settings.lr); $("lr-shown").textContent = short(settings.lr);
  $("sec").checked = settings.sec > 0;
  $("weight").disabled = !settings.sec;
  if (settings.sec) $("weight").value = Math.log10(settings.sec);
  $("weight-shown").textContent = settings.sec ? short(settings.sec) : "off";
  const focused = document.activeElement?.id;
  $("settings").replaceChildren(...loss().settings.flatMap(slider));
  if (focused?.startsWith("setting-")) $(focused)?.focus();
  $("about").textContent = catalog.data[settings.data].about;
  $("rule").textContent = catalog.data[settings.data].visits ? "Green: the same product, from another visit. Recall@1 counts how often the first one is green. Choose any dot, or go through the queries." : "Green: the same character. Recall@1 counts how often the first one is green. Choose any dot, or go through the queries.";
}
/** A change by hand: it goes on training if it was. */
async function again(changed) {
  const on = playing;
  await change(changed);
  if (on) play(true);
}
function preset({ set }) {
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  return change({ ...FIRST, data: settings.data, seed: settings.seed, ...set }).then(() => (calm ? ahead(100) : play(true)));
}
/** Where steps lead, in one picture: for readers to whom motion is unwelcome. */
async function ahead(count) {
  unseen = true;
  try { for (let k = 0; k < count; k += 5) await send("steps", { count: 5 }); } finally { unseen = false; }
  draw();
}
function fill() {
  $("data").replaceChildren(...Object.keys(catalog.data).map((name) => new Option(name, name)));
  $("loss").replaceChildren(...[...new Set(catalog.losses.map(({ family }) => family))].map((family) => {
    const group = node("optgroup", { label: family });
    group.append(...catalog.losses.filter((each) => each.family === family).map((each) => new Option(each.title, each.name)));
    return group;
  }), ...catalog.missing.map(({ title }) => { const option = new Option(`${title} (missing: see below)`); option.disabled = true; return option; }));
  $("missing").replaceChildren(...catalog.missing.map(({ title, why }) => node("li", {}, `${title} cannot train here: ${why}.`)));
  $("presets").replaceChildren(...PRESETS.map((each) => { const button = node("button", { type: "button" }, each.title); button.addEventListener("click", () => preset(each)); return button; }));
  const weights = catalog.sizes.shapes.reduce((sum, shape) => sum + shape.reduce((a, b) => a * b), 0);
  $("network").textContent = `The network has ${weights.toLocaleString("en")} weights: three convolutions with stride 2 and a linear layer; it trains on ${catalog.sizes.classes} classes of ${catalog.sizes.images} images.`;
}
function listen() {
  for (const key of ["data", "loss"]) $(key).addEventListener("change", () => again({ [key]: $(key).value }));
  for (const key of ["classes", "dim", "seed"]) $(key).addEventListener("change", () => again({ [key]: Number($(key).value) }));
  $("lr").addEventListener("input", () => { $("lr-shown").textContent = short(10 ** $("lr").value); });
  $("lr").addEventListener("change", () => again({ lr: 10 ** $("lr").value }));
  $("sec").addEventListener("change", () => again({ sec: $("sec").checked ? 1 : 0 }));
  $("weight").addEventListener("change", () => again({ sec: 10 ** $("weight").value }));
  $("go").addEventListener("click", () => play(!playing));
  $("one").addEventListener("click", () => { play(false); send("steps", { count: 1 }); });
  $("rewind").addEventListener("click", () => change({}));
  $("pace").addEventListener("change", () => { slow = 0; pace(); });
  $("link").addEventListener("click", async () => {
    try { await navigator.clipboard.writeText(location.href); $("link").textContent = "Copied"; } catch { $("link").textContent = "Copy the address of this page"; }
  });
  const query = (by) => { chosen = (chosen + by + frame.rows.length) % frame.rows.length; draw(); };
  $("before").addEventListener("click", () => query(-1));
  $("after").addEventListener("click", () => query(1));
  addEventListener("hashchange", () => { settings = read(); restart(); });
  addEventListener("resize", draw);
  dark.addEventListener("change", () => { restart(); });
  pointers();
}
function pointers() {
  const canvas = $("plane");
  let held = null, moved = 0;
  canvas.addEventListener("pointerdown", (event) => { held = [event.clientX, event.clientY]; moved = 0; canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointermove", (event) => {
    if (!held) return;
    const [dx, dy] = [event.clientX - held[0], event.clientY - held[1]];
    moved += Math.hypot(dx, dy); held = [event.clientX, event.clientY];
    if (settings.dim === 3) { yaw += dx / 150; pitch += dy / 150; draw(); }
  });
  canvas.addEventListener("pointerup", (event) => {
    if (held && moved < 6) {
      const box = canvas.getBoundingClientRect(), far = spots.map(([x, y, z]) => Math.hypot(x - event.clientX + box.left, y - event.clientY + box.top) - z);
      chosen = far.indexOf(Math.min(...far)); draw();
    }
    held = null;
  });
  canvas.addEventListener("pointercancel", () => { held = null; });
  canvas.addEventListener("keydown", (event) => {
    const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (!way) return;
    event.preventDefault();
    if (settings.dim === 3) { yaw += way[0] / 8; pitch += way[1] / 8; } else chosen = (chosen + way[0] + way[1] + frame.rows.length) % frame.rows.length;
    draw();
  });
}

async function begin() {
  const still = () => { $("film").hidden = false; document.querySelector("main").hidden = true; };
  if (typeof WebAssembly === "undefined" || typeof Worker === "undefined" || location.protocol === "file:") return still();
  try { catalog = await (await fetch("./explainer.json")).json(); } catch { return still(); }
  worker = new Worker("./worker.js", { type: "module" });
  worker.addEventListener("message", heard);
  worker.addEventListener("error", still);
  fill(); listen();
  settings = read();
  await restart();
  for (const id of ["go", "one", "rewind"]) $(id).disabled = false;
  return null;
}

window.explainer = { ready: begin(), change: (changed) => change(changed), steps: (count) => send("steps", { count }), catalog: () => catalog, frame: () => frame, seen: () => history.map(({ step }) => step), norms: () => norms(frame), presets: PRESETS.map(({ set }) => ({ ...FIRST, ...set })) };
