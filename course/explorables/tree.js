// A tree in two dimensions whose curvature is moved from 0 on, and whose root is dragged while no distance changes.
import { bar, node, on, plane, short, widget } from "./stage.js";

const UNIT = 130, MOST = 0.85, INK = ["var(--ink)", "var(--a)", "var(--c)", "var(--push)"];

const times = ([a, b], [c, d]) => [a * c - b * d, a * d + b * c];
/** z, after 0 has moved to a, with curvature −k. */
const moved = ([x, y], [a, b], k) => {
  const [c, d] = times([k * a, -k * b], [x, y]), size = (1 + c) ** 2 + d * d;
  return times([x + a, y + b], [(1 + c) / size, -d / size]);
};
const flat = (a, b) => Math.hypot(a[0] - b[0], a[1] - b[1]);
const tanh = (v, s) => (s ? Math.tanh(s * v) / s : v);

export function compute({ numbers: [c], points: [root] }, { data: { step, paper, places, edges, leaves: [apple, other, milk] } }) {
  const s = Math.sqrt(c), part = s / step, k = Math.min(Math.floor(part), places.length - 2);
  let x = places[k].map((u, i) => u.map((v, j) => v + (places[k + 1][i][j] - v) * (part - k)));
  x = x.map((u) => { const r = Math.hypot(...u); return r ? u.map((v) => (v * tanh(r, s)) / r) : u; });
  x = x.map((u) => moved(u, x[0].map((v) => -v), c));
  const scale = paper / Math.max(...x.map((u) => Math.hypot(...u)));
  x = x.map((u) => moved(u, root.map((v) => v / scale), c));
  const inside = x.map(([a, b]) => 1 - c * (a * a + b * b));
  const distance = (i, j) => (s ? (2 / s) * Math.asinh((s * flat(x[i], x[j])) / Math.sqrt(inside[i] * inside[j])) : 2 * flat(x[i], x[j]));
  let error = 0, pairs = 0;
  for (let i = 0; i < x.length; i++) for (let j = 0; j < i; j++) { error += (distance(i, j) / edges[i][j] - 1) ** 2; pairs += 1; }
  return { paper: scale * flat(x[apple], x[other]), near: distance(apple, other), far: distance(apple, milk),
    drawn: x.map((u) => u.map((v) => scale * v)), rim: scale / Math.max(s, Math.sqrt(1e-9)), scale, error: 100 * Math.sqrt(error / pairs) };
}

/** The shortest way from a to b: a straight line, seen from a. */
function way(a, b, k) {
  const v = moved(b, a.map((u) => -u), k), r = Math.hypot(...v) || 1, s = Math.sqrt(k);
  const far = s ? Math.atanh(Math.min(s * r, 1 - 1e-12)) / s : r;
  return Array.from({ length: 13 }, (_, i) => moved(v.map((u) => (u / r) * tanh((far * i) / 12, s)), a, k));
}

const drawing = ({ data: { parents, branches, leaves } }) => {
  const rim = node("circle", { class: "ring" }), lines = INK.map((ink) => node("path", { style: `fill: none; stroke: ${ink}`, "stroke-width": 1.3 }));
  const dots = branches.map((branch) => node("circle", { style: `fill: ${INK[branch]}` }));
  const below = node("g", { "aria-hidden": "true" }, rim, ...lines, ...dots), { round, ...rest } = plane({ unit: UNIT, low: -MOST, high: MOST, step: 0.02 });
  const at = ([x, y]) => [UNIT * x, -UNIT * y];
  return {
    below, move: { ...rest, round: (xy) => { const r = Math.hypot(...xy); return round(r > MOST ? xy.map((v) => (v * MOST) / r) : xy); } },
    draw({ drawn, rim: radius, scale }, { numbers: [c] }) {
      rim.setAttribute("r", UNIT * radius);
      rim.setAttribute("visibility", radius < 1.3 ? "visible" : "hidden");
      const paths = INK.map(() => "");
      parents.forEach((parent, k) => {
        if (parent === k) return;
        const ends = [drawn[parent], drawn[k]], along = way(...ends, c / scale ** 2);
        paths[branches[k]] += `M${along.map((p) => at(p).map((v) => v.toFixed(2)).join(" ")).join("L")}`;
      });
      lines.forEach((line, branch) => line.setAttribute("d", paths[branch]));
      dots.forEach((dot, k) => { const [cx, cy] = at(drawn[k]); for (const [key, v] of Object.entries({ cx, cy, r: leaves.includes(k) ? 5 : 2 })) dot.setAttribute(key, v); });
    },
    said: ({ paper, near, far, error }) => `Two apples are ${short(paper, 3)} apart on the paper and ${short(near, 3)} in the space; apple and milk ${short(far, 3)}. Distances are ${short(error, 3)} % wrong.`,
    tables: () => [["Distances", ["", "edges", "in the space"], [["two apples", "2", ["near"]], ["apple and milk", "6", ["far"]]]]],
    key: [[bar(INK[1], "fruit"), bar(INK[2], "vegetables"), bar(INK[3], "packages")], "Large dots: two apples, and a milk. The circle is the edge of the space; flat, there is none."],
  };
};

export const mount = on(drawing);
export default widget(mount);
