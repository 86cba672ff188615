// Free embeddings that must turn to 90 degrees: the angular loss moves them sideways, a constraint along themselves.
import { arrow, bar, node, on, plane, short, widget } from "./stage.js";

const UNIT = 62, RATE = 0.05, SEEN = 14, SIDE = "var(--push)", ALONG = "var(--pull)";
const mean = (values) => values.reduce((a, b) => a + b, 0) / values.length;
// The norm that a constraint leaves alone.
const aim = (choice, norms) => (choice === "l2" ? 0 : choice === "relative" ? mean(norms.map((n) => n * n)) / mean(norms) : mean(norms));

export function compute({ choice, numbers: [eta = 0], points }) {
  const norms = points.map((f) => Math.hypot(...f)), mu = mean(norms), target = aim(choice, norms), from = choice === "l2" ? 0 : mu;
  const weight = choice === "relative" ? eta / mu ** 2 : eta, value = weight * mean(norms.map((n) => (n - from) ** 2));
  const pulls = norms.map((n) => (-RATE * 2 * weight * (n - target)) / norms.length);
  const sideways = points.map(([x], i) => (RATE * x) / norms[i] ** 2); // of −sin: cos/n, counterclockwise
  const steps = points.map(([x, y], i) => [(pulls[i] * x - sideways[i] * y) / norms[i], (pulls[i] * y + sideways[i] * x) / norms[i]]);
  return {
    value, norms, mean: mu, spread: (100 * Math.sqrt(mean(norms.map((n) => (n - mu) ** 2)))) / mu,
    angles: points.map(([x, y]) => (Math.atan2(y, x) * 180) / Math.PI), pulls,
    turns: sideways.map((s, i) => ((s / norms[i]) * 180) / Math.PI), steps,
  };
}

const drawing = (settings) => {
  const lines = node("g"), below = node("g", { "aria-hidden": "true" }, lines), names = settings.points.map(({ name }) => name);
  const inked = (at, by, ink) => arrow(at, by).map((path) => { path.setAttribute("style", `fill: ${ink}; stroke: ${ink}`); return path; });
  const label = (x, y, text) => node("text", { x, y }, text);
  return {
    below, box: "-24 -290 330 318", move: plane({ unit: UNIT, low: 0, high: 4.5, step: 0.05 }),
    draw({ norms, pulls, turns }, { choice, points }) {
      const r = choice === "none" ? 0 : UNIT * aim(choice, norms);
      lines.replaceChildren(
        node("path", { class: "axis", d: `M0 0H290M0 0V${-4.4 * UNIT}`, "stroke-dasharray": "3 4" }), label(18, -4.45 * UNIT, "goal, 90°"),
        ...(r > 0 ? [node("path", { class: "axis", d: `M${r} 0A${r} ${r} 0 0 0 0 ${-r}`, style: `stroke: ${ALONG}`, "stroke-dasharray": "6 4" })] : []),
        ...points.flatMap(([x, y], i) => {
          const at = [UNIT * x, -UNIT * y], u = [x / norms[i], -y / norms[i]], across = (SEEN * UNIT * turns[i] * norms[i] * Math.PI) / 180;
          const pull = SEEN * UNIT * pulls[i];
          return [node("path", { class: "axis", d: `M0 0L${at}`, style: "stroke: var(--ink)" }),
            ...inked(at, [u[1] * across, -u[0] * across], SIDE), ...inked(at, u.map((v) => v * pull), ALONG)];
        }));
    },
    said({ angles, norms }) {
      const first = angles.indexOf(Math.max(...angles)), last = angles.indexOf(Math.min(...angles));
      return `Angles ${angles.map((a) => `${short(a, 3)}°`).join(", ")}. `
        + (angles[first] < 0.5 ? "None has turned yet." : angles[first] - angles[last] < 0.5 ? "All turn together." : `Norm ${short(norms[first], 3)} leads, norm ${short(norms[last], 3)} is last.`);
    },
    about: ({ norms, angles }, i) => `norm ${short(norms[i], 3)} at ${short(angles[i], 3)} degrees`,
    tables: () => [["A step of SGD", ["embedding", "norm", "angle (°)", "adds to the norm", "turn (°)"],
      names.map((name, i) => [name, [`norms.${i}`], [`angles.${i}`], [`pulls.${i}`], [`turns.${i}`]])]],
    key: [[bar(SIDE, "angular loss: sideways"), bar(ALONG, "constraint: along")], `Arrows: a step of SGD, ${SEEN} times as long. Dashed arc: the norm that the constraint asks for.`],
    play: {
      label: "Start the race",
      begin() {},
      step({ steps, angles }, { points }) {
        return Math.min(...angles) > 89 ? null : points.map((f, i) => f.map((v, k) => Math.max(v + 3 * steps[i][k], k ? 0 : 1e-3)));
      },
    },
  };
};

export const mount = on(drawing);
export default widget(mount);
