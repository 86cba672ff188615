// What the share of a variance is by chance: shuffled images against dealt characters, and the share that is seen.
import { along, node, on, short, widget } from "./stage.js";

const LEFT = -140, WIDE = 280, BASE = 90, HIGH = 180, MOST = 60, LIMIT = 15.507313055865453 / 2;
const beyond = (x) => Math.exp(-x) * (1 + x + (x * x) / 2 + (x * x * x) / 6);
const GRID = Array.from({ length: 200 }, (_, k) => ((k + 0.5) / 200) * 0.6);

export function compute({ numbers: [images, rho], points: [[seen]] }) {
  const m = Math.round(images), stretch = 1 + (m - 1) * rho, freedom = 45 * m - 1, half = (seen / 100) * (freedom / 2);
  const shape = (s) => GRID.map((v) => { const x = (v * freedom) / 2 / s; return (x ** 3 * Math.exp(-x)) / s / (27 * Math.exp(-3)); });
  return {
    images: 100 * beyond(half), characters: 100 * beyond(half / stretch), findings: 100 * beyond(LIMIT / stretch),
    mean: (800 * stretch) / freedom, high: [shape(1), shape(stretch)],
  };
}

const x = (share) => LEFT + (WIDE * share) / MOST;

const drawing = () => {
  const wrong = node("path", { style: "fill: var(--push); fill-opacity: .45; stroke: var(--push)" });
  const right = node("path", { style: "fill: var(--pull); fill-opacity: .45; stroke: var(--pull)" });
  const edge = node("path", { style: "stroke: var(--ink)", "stroke-width": 1.5 });
  const tick = (share) => [node("path", { class: "axis", d: `M${x(share)} ${BASE}v6` }), node("text", { x: x(share), y: BASE + 22 }, `${share} %`)];
  const below = node("g", { "aria-hidden": "true" }, wrong, right, edge, node("path", { class: "axis", d: `M${LEFT} ${BASE}h${WIDE}` }),
    ...[0, 20, 40, 60].flatMap(tick), node("text", { x: 0, y: BASE + 42 }, "share of the variance between kinds"));
  return {
    below, box: "-156 -130 312 270",
    move: along({ from: [x(0), BASE], to: [x(MOST), BASE], low: 0.2, high: MOST, step: 0.2 }),
    draw({ high }, { points: [[seen]] }) {
      const top = Math.max(...high[0], ...high[1]);
      for (const [path, heights] of [[wrong, high[0]], [right, high[1]]]) {
        const line = heights.map((v, k) => `L${x(100 * GRID[k]).toFixed(1)} ${(BASE - (HIGH * v) / top).toFixed(1)}`).join("");
        path.setAttribute("d", `M${x(0)} ${BASE}${line}V${BASE}z`);
      }
      edge.setAttribute("d", `M${x(seen)} ${BASE}V${BASE - HIGH}`);
    },
    said: ({ images, characters }, { points: [[seen]] }) => `A share of ${short(seen, 3)} %: ${short(images, 3)} of 100 shuffles of images exceed it, and ${short(characters, 3)} of 100 deals of whole characters.`,
    about: ({ images, characters }) => `${short(images, 3)} % of shuffled images and ${short(characters, 3)} % of dealt characters exceed it`,
    tables: () => [["By chance", ["", "%"], [["mean share, characters dealt", ["mean"]], ["false findings by images", ["findings"]]]]],
    key: ["Orange: images shuffled. Blue: whole characters dealt. Black: the share that is seen."],
  };
};

export const mount = on(drawing);
export default widget(mount);
