// Two synthetic points as their proxy sees them: where each pulls it, and the mean pull of many draws.
import { circle, node, on, rad, short, spot, widget } from "./stage.js";

const KEPT = 200;
const meanOf = (points) => [Math.cos, Math.sin].map((f) => points.reduce((sum, [degrees]) => sum + f(rad(degrees)), 0) / points.length);

export function compute({ points: [[x], ...points] }) {
  const mean = meanOf(points), towards = [Math.cos(rad(x)), Math.sin(rad(x))];
  return { mean: mean.map((v) => 100 * v), length: 100 * Math.hypot(...mean), towards: 100 * (mean[0] * towards[0] + mean[1] * towards[1]) };
}

const PLACES = {
  random: () => [360 * Math.random(), 360 * Math.random()],
  corners: (x) => (Math.random() < 0.5 ? [x + 120, x - 120] : [x - 120, x + 120]),
  spread: () => { const at = 360 * Math.random(); return [at, at + 180]; },
};

const drawing = () => {
  const lines = node("g"), dots = node("g"), mean = node("circle", { r: 6.5, style: "fill: var(--pull); stroke: var(--paper)" });
  const below = node("g", { "aria-hidden": "true" }, node("circle", { class: "ring", r: 100 }), dots, lines, mean);
  let seen = [];
  const typical = () => Math.sqrt(seen.reduce((sum, [u, v]) => sum + u * u + v * v, 0) / Math.max(seen.length, 1));
  return {
    below, move: circle(), begin() { seen = []; },
    draw({ mean: [u, v] }, { points: [x, ...points] }) {
      const line = ([degrees], style) => { const [x2, y2] = spot(degrees); return node("line", { x1: 0, y1: 0, x2, y2, style }); };
      lines.replaceChildren(line(x, "stroke: var(--line); stroke-dasharray: 4 4"), ...points.map((each) => line(each, "stroke: var(--push); stroke-width: 2")),
        node("circle", { r: 3.5, style: "fill: var(--ink)" }));
      dots.replaceChildren(...seen.map(([cx, cy]) => node("circle", { cx, cy: -cy, r: 2.6, style: "fill: var(--soft)", opacity: 0.6 })));
      for (const [key, at] of [["cx", u], ["cy", -v]]) mean.setAttribute(key, at);
    },
    said: ({ length }) => `The mean pull has the length ${short(length, 3)}.${seen.length ? ` Root mean square of ${seen.length} draws: ${short(typical(), 2)}.` : ""}`,
    about: (_, i) => (i ? "a synthetic point" : "the sample"),
    tables: () => [["Mean pull, radius 100", ["", ""], [["to the right", ["mean.0"]], ["up", ["mean.1"]]]]],
    key: ["Orange: pulls of two points. Blue: their mean. Gray: means of earlier draws. x: the sample."],
    play: {
      label: "Draw ten times", begin() { this.left = 10; },
      step(_, { choice, points: [x] }) {
        if (!this.left--) return null;
        const drawn = PLACES[choice](x[0]).map((degrees) => [degrees]);
        seen = [...seen, meanOf(drawn).map((v) => 100 * v)].slice(-KEPT);
        return [x, ...drawn];
      },
    },
  };
};

export const mount = on(drawing);
export default widget(mount);
