// Twelve points of three classes: a link to the nearest chosen medoid pushes, one to the own class's medoid pulls; where both are one point they cancel.
import { arrow, bar, node, on, plane, short, widget } from "./stage.js";

const UNIT = 84, SEEN = 20, N = 12, SETS = [];
for (let a = 0; a < N; a++) for (let b = a + 1; b < N; b++) for (let c = b + 1; c < N; c++) SETS.push([a, b, c]);
const label = (i) => Math.floor(i / 4), sum = (values) => values.reduce((a, b) => a + b, 0);
const entropy = (counts) => -sum(counts.map((n) => (n ? (n / N) * Math.log(n / N) : 0)));
/** The place of the largest value, the first of those that are as large but for rounding. */
const first = (worth) => { const top = Math.max(...worth) - 1e-9; return worth.findIndex((v) => v > top); };

/** A choice of medoids: each point's nearest one, the score, and NMI of its clusters and the classes. */
function clustering(D, S) {
  const joint = Array(9).fill(0), clusters = [0, 0, 0];
  const to = D.map((row, i) => {
    const g = S.reduce((best, j, k) => (row[j] < row[S[best]] ? k : best), 0);
    clusters[g] += 1; joint[3 * g + label(i)] += 1;
    return S[g];
  });
  const H = entropy(clusters), classes = entropy([4, 4, 4]);
  return { to, score: -sum(to.map((j, i) => D[i][j])), nmi: (H + classes - entropy(joint)) / Math.sqrt(Math.max(H * classes, 1e-12)) };
}

export function compute({ numbers: [gamma, s], points }) {
  const D = points.map(([a, b]) => points.map(([c, d]) => s * Math.hypot(a - c, b - d)));
  const all = SETS.map((S) => clustering(D, S)), best = first(all.map(({ score, nmi }) => score + gamma * (1 - nmi)));
  const { to: chosen, score, nmi } = all[best], members = [0, 1, 2].map((k) => [0, 1, 2, 3].map((i) => 4 * k + i));
  const medoid = members.map((k) => k[first(k.map((j) => -sum(k.map((i) => D[i][j]))))]), own = points.map((_, i) => medoid[label(i)]);
  const truth = -sum(own.map((j, i) => D[i][j])), loss = Math.max(0, score + gamma * (1 - nmi) - truth), force = points.map(() => [0, 0]);
  if (loss > 0) points.forEach((x, i) => [[chosen[i], 1], [own[i], -1]].forEach(([j, sign]) => {
    const away = Math.max(Math.hypot(x[0] - points[j][0], x[1] - points[j][1]), 1e-12);
    if (chosen[i] !== own[i]) [0, 1].forEach((k) => { const f = (sign * s * (x[k] - points[j][k])) / away; force[i][k] += f; force[j][k] -= f; });
  }));
  const moving = force.filter((f) => Math.hypot(...f) > 1e-9).length;
  return { score, true: truth, nmi, loss, force, chosen, own, moving, medoids: SETS[best] };
}

const drawing = (settings) => {
  const lines = node("g"), below = node("g", { "aria-hidden": "true" }, lines), at = ([x, y]) => [UNIT * x, -UNIT * y];
  const names = settings.points.map(({ label: name }) => name), still = ({ force }, i) => Math.hypot(...force[i]) < 1e-9;
  const link = (a, b, color, width, more = {}) => node("line", { x1: a[0], y1: a[1], x2: b[0], y2: b[1], style: `stroke: var(${color})`, "stroke-width": width, ...more });
  const ring = ([cx, cy], r, color) => node("circle", { cx, cy, r, style: `fill: none; stroke: var(${color}); stroke-width: 2.4` });
  return {
    below, move: plane({ unit: UNIT, low: -1.7, high: 1.7, step: 0.05 }),
    draw({ chosen, own, force, medoids, loss }, { points, numbers: [, s] }) {
      const p = points.map(at);
      lines.replaceChildren(
        ...p.flatMap((x, i) => (chosen[i] === own[i] ? [link(x, p[own[i]], "--line", 1.6, { "stroke-dasharray": "3 4" })]
          : [link(x, p[chosen[i]], "--push", 2.4, { opacity: loss ? 0.75 : 0.25 }), link(x, p[own[i]], "--pull", 2.4, { opacity: loss ? 0.75 : 0.25 })])),
        ...[...new Set(own)].map((j) => ring(p[j], 10, "--pull")), ...medoids.map((j) => ring(p[j], 13.5, "--push")),
        ...(s < 1 ? p.map(([cx, cy]) => node("circle", { cx: s * cx, cy: s * cy, r: 2, style: "fill: var(--soft)" })) : []),
        ...p.flatMap((x, i) => arrow(x, [SEEN * force[i][0], -SEEN * force[i][1]])));
    },
    said(answer) {
      if (!answer.loss) return "The loss is 0: no clustering scores higher than the true one, and nothing moves.";
      const content = names.filter((_, i) => still(answer, i));
      return content.length ? `These feel nothing: ${content.join(", ")}.` : "Every point feels a force.";
    },
    about: (answer, i) => `chosen medoid ${names[answer.chosen[i]]}, own ${names[answer.own[i]]}, ${still(answer, i) ? "no force" : `force ${short(Math.hypot(...answer.force[i]), 2)}`}`,
    tables: (answer) => [["Each point", ["point", "chosen medoid", "own medoid", "force in x", "in y"],
      names.map((name, i) => [name, names[answer.chosen[i]], names[answer.own[i]], [`force.${i}.0`], [`force.${i}.1`]])]],
    key: [[bar("var(--push)", "push, from the nearest chosen medoid"), bar("var(--pull)", "pull, to the own class’s medoid"), bar("var(--line)", "both are one point: they cancel")],
      "Rings: medoids. Arrows: forces. Small dots: the points at distances × s."],
    play: { label: "Follow the forces", step: ({ loss, force }, { points }) => (loss < 5e-4 ? null : points.map((x, i) => x.map((v, k) => v + 0.01 * force[i][k]))) },
  };
};

export const mount = on(drawing);
export default widget(mount);
