// Trains beside the page: graphs in, embeddings of unseen images out. It knows no equation.
import * as ort from "./ort/ort.wasm.bundle.min.mjs";
import { batch, begin } from "./random.js";

ort.env.wasm.numThreads = 1; // more would need headers that a plain server does not send
ort.env.wasm.wasmPaths = { wasm: new URL("./ort/ort-wasm-simd-threaded.wasm", import.meta.url).href };

const kept = new Map();
const once = (key, make) => kept.get(key) ?? kept.set(key, make()).get(key);
const graph = (name) => once(name, () => ort.InferenceSession.create(new URL(`./models/${name}.onnx`, import.meta.url).href));
const fetched = (name) => fetch(new URL(name, import.meta.url));
const catalog = once("catalog", async () => (await fetched("explainer.json")).json());
const pixels = (name) => once(`${name}.bin`, async () => new Uint8Array(await (await fetched(`${name}.bin`)).arrayBuffer()));
const tensor = (values, ...dims) => new ort.Tensor("float64", values, dims);
const one = (value) => tensor(Float64Array.of(value));

let run; // what is trained: settings, parameters, the step
let pace = 0, until = 0; // steps a second, 0: pause; the step that ends them

async function ask(name, feed) {
  const session = await graph(name), out = await session.run(feed);
  return session.outputNames.map((output) => out[output].data);
}

async function start(settings) {
  const { sizes, losses, data } = await catalog;
  const images = await pixels(settings.data), loss = losses.find(({ name }) => name === settings.loss);
  const p = begin(settings.seed, settings.dim, sizes), weights = p.length - sizes.classes * sizes.dim;
  const mask = Float64Array.from({ length: sizes.dim }, (_, i) => Number(i < settings.dim));
  const rates = Float64Array.from(p, (_, i) => settings.lr * (i < weights ? 1 : sizes.proxyRate));
  run = { settings, sizes, loss, images, channels: data[settings.data].channels, p, weights, k: 0, value: NaN,
    m: new Float64Array(p.length), v: new Float64Array(p.length), mask: tensor(mask, sizes.dim), rates };
}

/** Images by their places in the file, as the network takes them: a gray one has three equal channels. */
function input(places) {
  const { images, channels, sizes: { side } } = run, area = side * side, values = new Float64Array(places.length * 3 * area);
  places.forEach((place, i) => {
    for (let c = 0; c < 3; c++) {
      const from = (place * channels + (channels === 3 ? c : 0)) * area, to = (i * 3 + c) * area;
      for (let j = 0; j < area; j++) values[to + j] = images[from + j] / 255;
    }
  });
  return tensor(values, places.length, 3, side, side);
}

async function step() {
  const { settings, sizes, loss, mask, weights, p, m, v, rates } = run, k = ++run.k, N = p.length;
  const { labels, places } = batch(settings.seed, k, settings.classes, sizes.batch / settings.classes, sizes);
  const network = { p: tensor(p.subarray(0, weights), weights), mask, images: input(places.map((place, i) => labels[i] * sizes.images + place)) };
  const [points] = await ask("forward", network);
  const feed = { sec: one(settings.sec), labels: new ort.Tensor("int64", BigInt64Array.from(labels, BigInt), [labels.length]), points: tensor(points, labels.length, sizes.dim) };
  for (const { name } of loss.settings) feed[name] = one(settings[name]);
  if (loss.proxies) feed.proxies = tensor(p.subarray(weights), sizes.classes, sizes.dim);
  const [[value], forces, ofProxies] = await ask(loss.name, feed);
  const [gradient] = await ask("backward", { ...network, forces: tensor(forces, labels.length, sizes.dim) });
  const g = new Float64Array(N);
  g.set(gradient);
  ofProxies?.forEach((force, i) => { g[weights + i] = -force; });
  [run.p, run.m, run.v] = await ask("adam", { p: tensor(p, N), m: tensor(m, N), v: tensor(v, N), g: tensor(g, N), step: one(k), lr: tensor(rates, N) });
  run.value = value;
}

/** Embeddings of all unseen images, a batch at a time. */
async function unseen() {
  const { sizes, p, mask, weights } = run, first = sizes.classes * sizes.images, count = sizes.unseen * sizes.ofEach;
  const found = new Float64Array(count * sizes.dim);
  for (let at = 0; at < count; at += sizes.batch) {
    const images = input(Array.from({ length: sizes.batch }, (_, i) => first + at + i));
    found.set((await ask("forward", { p: tensor(p.subarray(0, weights), weights), mask, images }))[0], at * sizes.dim);
  }
  return found;
}

async function show(extra) { postMessage({ kind: "frame", step: run.k, value: run.value, points: await unseen(), settings: run.settings, begun: run.begun, ...extra }); }

// Jobs run one after another, so that a setting never changes within a step.
let jobs = Promise.resolve();
const queue = (job) => { jobs = jobs.then(job).catch((error) => { pace = 0; postMessage({ kind: "error", message: String(error?.message ?? error) }); }); return jobs; };

let loop = 0; // the one that runs

async function go(id) {
  const began = performance.now(), count = pace > 50 ? 5 : 1;
  await queue(async () => {
    if (!pace || id !== loop || run.k >= until) return;
    for (let i = 0; i < count && run.k < until; i++) await step();
    await show();
  });
  if (pace && id === loop && run.k < until) setTimeout(go, Math.max(0, (1000 * count) / pace - (performance.now() - began)), id);
}

const does = {
  start: ({ settings, begun }) => queue(async () => { await start(settings); run.begun = begun; await show(); }),
  pace: ({ value, until: last }) => { pace = value; until = last; if (pace) go(++loop); },
  steps: ({ count }) => queue(async () => {
    const began = performance.now();
    for (let i = 0; i < count; i++) await step();
    await show({ seconds: (performance.now() - began) / 1000 });
  }),
};
addEventListener("message", ({ data }) => does[data.kind](data));
