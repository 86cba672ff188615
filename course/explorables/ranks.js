// A result list: four hits to drag to other ranks, and what Recall@1, R-precision and MAP@R make of it.
import { along, bar, node, on, short, widget } from "./stage.js";

const LENGTH = 12, W = 25, LEFT = -150;
const x = (rank) => LEFT + W * (rank - 0.5);

/** Whole ranks, no two alike: in their order, the next free one, and room is left for those behind. */
function places(wanted) {
  const order = wanted.map((_, i) => i).sort((a, b) => wanted[a] - wanted[b] || a - b), taken = [];
  let last = 0;
  order.forEach((i, k) => {
    const v = wanted[i], whole = Math.abs((v % 1) - 0.5) < 1e-9 ? 2 * Math.round(v / 2) : Math.round(v); // halves to even, as Python
    last = Math.min(Math.max(whole, last + 1), LENGTH - wanted.length + k + 1);
    taken[i] = last;
  });
  return taken;
}

export function compute({ points }) {
  const ranks = places(points.map(([v]) => v)), R = ranks.length;
  const precision = ranks.map((rank) => ranks.filter((other) => other <= rank).length / rank);
  const counted = ranks.map((rank) => Number(rank <= R)), sum = (values) => values.reduce((a, b) => a + b, 0);
  return {
    recall_at_1: Number(ranks.includes(1)), r_precision: sum(counted) / R,
    map_at_r: sum(precision.map((p, i) => p * counted[i])) / R, ranks, precision, counted,
  };
}

const drawing = (settings) => {
  const cells = Array.from({ length: LENGTH }, (_, k) => node("rect", { x: x(k + 1) - W / 2 + 1.5, y: -16, width: W - 3, height: 32, rx: 3 }));
  const terms = node("g"), R = settings.points.length;
  const below = node("g", { "aria-hidden": "true" },
    node("rect", { x: LEFT - 2, y: -24, width: W * R + 4, height: 48, rx: 5, style: "fill: none; stroke: var(--soft); stroke-dasharray: 4 4" }),
    node("text", { x: LEFT + (W * R) / 2, y: -34 }, `the first R = ${R}`), ...cells,
    ...cells.map((_, k) => node("text", { x: x(k + 1), y: 40 }, k + 1)), node("text", { x: 0, y: 62 }, "rank"), terms);
  return {
    below, box: "-156 -100 312 200",
    move: along({ from: [x(1), 0], to: [x(LENGTH), 0], low: 1, high: LENGTH, step: 1 }),
    draw({ ranks, precision, counted }) {
      cells.forEach((cell, k) => cell.setAttribute("style", ranks.includes(k + 1) ? "fill: var(--a); fill-opacity: .25; stroke: var(--a); stroke-width: 2.5" : "fill: var(--panel); stroke: var(--line)"));
      terms.replaceChildren(...ranks.map((rank, i) => node("text", { x: x(rank), y: -62, style: `font-size: 11.5px; ${counted[i] ? "fill: var(--ink)" : "opacity: .45"}` }, short(precision[i], 2))),
        node("text", { x: 0, y: -82 }, "precision at each hit; behind R it does not count"));
    },
    said: ({ ranks }) => `Hits at ranks ${[...ranks].sort((a, b) => a - b).join(", ")}.`,
    about: ({ ranks }, i) => `at rank ${ranks[i]}`,
    tables: ({ ranks }) => [["Each hit", ["hit", "rank", "precision there", "counted by MAP@R"], ranks.map((_, i) => [`${i + 1}`, [`ranks.${i}`], [`precision.${i}`], [`counted.${i}`]])]],
    key: [[bar("var(--a)", "a hit")], "MAP@R is the mean over R of the precision at the hits among the first R."],
  };
};

export const mount = on(drawing);
export default widget(mount);
