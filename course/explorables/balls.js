// Three balls as they are, as UMAP draws them, and the weights that it draws from.
import { bar, node, on, short, widget } from "./stage.js";

const INK = ["var(--a)", "var(--b)", "var(--c)"], NAMES = ["A", "B", "C"], SIDE = 140, GAP = 20, HIGH = 60;

const place = ({ choice, numbers: [power] }, data) => data[choice][Math.floor(power + 2.5)];

export function compute(state, { data }) {
  const { map, ...told } = place(state, data);
  return told;
}

const drawing = ({ data }) => {
  const frame = (x) => node("rect", { x, y: 0, width: SIDE, height: SIDE, style: "fill: var(--panel); stroke: var(--line)" });
  const truth = node("g"), map = node("g"), bars = node("g");
  const word = (x, y, text) => node("text", { x, y, "text-anchor": "middle" }, text);
  const below = node("g", { "aria-hidden": "true" }, frame(0), frame(SIDE + GAP), truth, map, bars,
    word(SIDE / 2, SIDE + 15, "truth"), word(SIDE * 1.5 + GAP, SIDE + 15, "UMAP"), word(SIDE + GAP / 2, SIDE + 105, "weights of a point of C, nearest first"));
  return {
    below, box: "-4 -4 308 256", move: {},
    draw({ width, distance, weights }, state) {
      const C = distance[0], most = 8 * Math.max(1, width[0]);
      const unit = (SIDE - 16) / Math.max(108 + most, 100 * C + 8 + 8 * width[0]);
      const at = [[0, 0], [100, 0], [0, 100 * C]].map(([x, y]) => [8 + unit * (x + most), SIDE - 8 - unit * (y + 8)]);
      truth.replaceChildren(...at.flatMap(([cx, cy], k) => [
        node("circle", { cx, cy, r: Math.max(1, unit * 8 * (k === 2 ? width[0] : 1)), style: `fill: ${INK[k]}; fill-opacity: 0.35; stroke: ${INK[k]}` }),
      ]));
      const points = place(state, data).map;
      map.replaceChildren(...points.map(([x, y, k]) => node("circle", {
        cx: SIDE + GAP + SIDE / 2 + x * (SIDE / 2 - 8), cy: SIDE / 2 - y * (SIDE / 2 - 8), r: 1.6, style: `fill: ${INK[k]}`,
      })));
      bars.replaceChildren(...weights.map((w, k) => node("rect", { x: 10 + 20 * k, y: SIDE + 88 - HIGH * w, width: 14, height: HIGH * w, style: "fill: var(--c)" })));
    },
    said: ({ width, distance }) => `C is ${short(width[0], 3)} times as wide as A, drawn ${short(width[1], 2)} times; ${short(distance[0], 3)} times as far as B, drawn ${short(distance[1], 2)} times.`,
    tables: () => [
      ["Ball C, in multiples of A, or of B's distance", ["", "true", "on the map"], [["width", ["width.0"], ["width.1"]], ["distance", ["distance.0"], ["distance.1"]], ["points", ["count"], ""]]],
      ["Mean weights of a point of C", ["neighbor", "weight"], Array.from({ length: 14 }, (_, k) => [`${k + 1}`, [`weights.${k}`]])],
    ],
    key: [NAMES.map((name, k) => bar(INK[k], name)), "A circle is a ball's mean radius; of each ball 40 points are drawn on the map."],
  };
};

export const mount = on(drawing);
export default widget(mount);
