// On a page: an explorable in place of its still picture, as soon as that comes near.
//
// <div data-explorable="springs"><figure>…</figure></div>; beside this file lie the modules and, for each explorable, a
// folder with its settings and graphs. ../playground/ort has the runtime, which is fetched at the first question.

const here = (path) => new URL(path, import.meta.url).href;

let ort; // once for all explorables of a page
async function load() {
  const module = await import(here("../playground/ort/ort.wasm.bundle.min.mjs"));
  module.env.wasm.numThreads = 1; // more would need headers that a plain server does not send
  module.env.wasm.wasmPaths = { wasm: here("../playground/ort/ort-wasm-simd-threaded.wasm") };
  return module;
}

/** The numbers of a tensor as nested arrays. */
const nested = (flat, [length, ...rest]) => (length === undefined ? Number(flat[0]) : Array.from({ length }, (_, i) => {
  const each = flat.length / length;
  return nested(flat.slice(i * each, (i + 1) * each), rest);
}));

/** An answer to {choice, numbers, points} from the graphs of an explorable. */
function graphs(name) {
  const sessions = new Map();
  return async ({ choice, numbers, points }) => {
    const { InferenceSession, Tensor } = await (ort ??= load());
    if (!sessions.has(choice)) sessions.set(choice, InferenceSession.create(here(`${name}/${choice}.onnx`)));
    const session = await sessions.get(choice), given = {
      numbers: new Tensor("float32", numbers, [numbers.length]),
      points: new Tensor("float32", points.flat(), [points.length, points[0]?.length ?? 1]),
    };
    const out = await session.run(Object.fromEntries(session.inputNames.map((input) => [input, given[input]])));
    return Object.fromEntries(session.outputNames.map((key) => [key, nested(out[key].data, out[key].dims)]));
  };
}

async function show(el) {
  const name = el.dataset.explorable;
  const [settings, module] = await Promise.all([fetch(here(`${name}/settings.json`)).then((reply) => reply.json()), import(`./${name}.js`)]);
  if (!module.compute && typeof WebAssembly === "undefined") {
    el.append(Object.assign(document.createElement("p"), { textContent: "This picture does not move here: the browser lacks WebAssembly." }));
    return;
  }
  const compute = module.compute ? async (question) => module.compute(question, settings) : graphs(name);
  module.mount(el, compute, settings);
}

const near = new IntersectionObserver((seen) => {
  for (const { isIntersecting, target } of seen) {
    if (!isIntersecting) continue;
    near.unobserve(target);
    show(target); // where this fails, the still picture stands
  }
}, { rootMargin: "600px" });
for (const el of document.querySelectorAll("[data-explorable]")) near.observe(el);
