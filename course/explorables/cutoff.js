// Twenty negatives at their distances, how probably a draw takes each, and the cutoff as a handle.
import { along, node, on, short, widget } from "./stage.js";

const COUNT = 20, FAR = 1.4, LEFT = -140, WIDE = 280, MOST = 1.6, BASE = 80, HIGH = 190;
const RELATIVE = Array.from({ length: COUNT }, (_, k) => 0.76 + (0.48 * k) / (COUNT - 1));

export function compute({ numbers: [size, dimensions], points: [[cutoff]] }) {
  const d = Math.round(dimensions), D = RELATIVE.map((r) => size * r), none = D[0] > FAR;
  const weight = D.map((each) => {
    const held = Math.min(Math.max(each, cutoff), FAR);
    return each <= FAR || none ? -((d - 2) * Math.log(held) + ((d - 3) / 2) * Math.log(1 - (held * held) / 4)) : -Infinity;
  });
  const top = Math.max(...weight), e = weight.map((v) => Math.exp(v - top)), sum = e.reduce((a, b) => a + b, 0), p = e.map((v) => v / sum);
  return { D, p, nearest: 100 * p[0], relative: p.reduce((a, each, k) => a + each * RELATIVE[k], 0) };
}

const x = (D) => LEFT + (WIDE * D) / MOST;

const drawing = () => {
  const bars = node("path", { style: "stroke: var(--pull)", "stroke-width": 4 }), dots = node("path", { style: "stroke: var(--ink); stroke-linecap: round", "stroke-width": 4 });
  const within = node("rect", { y: BASE - HIGH, height: HIGH, x: LEFT, style: "fill: var(--line); fill-opacity: .6" });
  const tick = (D, text) => [node("path", { class: "axis", d: `M${x(D)} ${BASE}v6` }), node("text", { x: x(D), y: BASE + 40 }, text)];
  const below = node("g", { "aria-hidden": "true" }, within, bars, node("path", { class: "axis", d: `M${LEFT} ${BASE}h${WIDE}` }), dots,
    ...tick(0, "0"), ...tick(0.5, "0.5"), ...tick(1, "1"), ...tick(1.4, "1.4"), node("text", { x: 0, y: BASE + 58 }, "distance from the anchor"));
  return {
    below, box: "-156 -130 312 280",
    move: along({ from: [x(0), BASE + 16], to: [x(FAR), BASE + 16], low: 0.001, high: FAR, step: 0.01 }),
    draw({ D, p }, { points: [[cutoff]] }) {
      const high = Math.max(...p);
      within.setAttribute("width", x(cutoff) - LEFT);
      bars.setAttribute("d", D.map((each, k) => `M${x(each).toFixed(1)} ${BASE}V${(BASE - (HIGH * p[k]) / Math.max(high, 0.2)).toFixed(1)}`).join(""));
      dots.setAttribute("d", D.map((each) => `M${x(each).toFixed(1)} ${BASE}v.1`).join(""));
    },
    said: ({ nearest, relative }) => `The nearest is drawn in ${short(nearest, 3)} %; the drawn negatives lie at ${short(relative, 3)} of the mean distance.`,
    about: ({ nearest }) => `the nearest is drawn in ${short(nearest, 3)} %`,
    tables: () => [["Draws", ["", ""], [["the nearest (%)", ["nearest"]], ["relative distance", ["relative"]]]]],
    key: ["Black: twenty negatives. Blue: how probably each is drawn. Gray: within the cutoff, whose handle stands below."],
  };
};

export const mount = on(drawing);
export default widget(mount);
