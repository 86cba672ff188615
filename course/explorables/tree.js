// A tree in the Poincaré disc, whose root is dragged while no distance changes, and in the plane.
import { bar, node, on, plane, short, widget } from "./stage.js";

const UNIT = 130, MOST = 0.95, INK = ["var(--ink)", "var(--a)", "var(--c)", "var(--push)"];

const times = ([a, b], [c, d]) => [a * c - b * d, a * d + b * c];
/** z, after 0 has moved to a. */
const moved = ([x, y], [a, b]) => {
  const [c, d] = times([a, -b], [x, y]), size = (1 + c) ** 2 + d * d;
  return times([x + a, y + b], [(1 + c) / size, -d / size]);
};
const inside = ([x, y]) => 1 - x * x - y * y;
const flat = (a, b) => Math.hypot(a[0] - b[0], a[1] - b[1]);
const curved = (a, b) => 2 * Math.asinh(flat(a, b) / Math.sqrt(inside(a) * inside(b)));

export function compute({ choice, numbers: [edge], points: [root] }, { data: { grown, edges, leaves: [apple, other, milk] } }) {
  const disc = choice === "disc", distance = disc ? curved : (a, b) => 3 * edge * flat(a, b);
  const x = grown.map((g) => { const r = Math.hypot(...g); return g.map((v) => (disc ? (r && (v * Math.tanh((edge * r) / 2)) / r) : v / 3)); });
  let error = 0, pairs = 0;
  for (let i = 0; i < x.length; i++) for (let j = 0; j < i; j++) { error += Math.abs(distance(x[i], x[j]) / (edge * edges[i][j]) - 1); pairs += 1; }
  const drawn = x.map((v) => (disc ? moved(v, root) : v.map((u, k) => u + root[k])));
  return { paper: flat(drawn[apple], drawn[other]), near: distance(drawn[apple], drawn[other]), far: distance(drawn[apple], drawn[milk]), drawn, error: (100 * error) / pairs };
}

/** The shortest way from a to b: a straight line, seen from a. */
function way(a, b) {
  const v = moved(b, a.map((u) => -u)), r = Math.hypot(...v) || 1, far = Math.atanh(Math.min(r, 1 - 1e-12));
  return Array.from({ length: 13 }, (_, k) => moved(v.map((u) => (u / r) * Math.tanh((far * k) / 12)), a));
}

const drawing = ({ data: { parents, branches, leaves } }) => {
  const rim = node("circle", { class: "ring", r: UNIT }), lines = INK.map((ink) => node("path", { style: `fill: none; stroke: ${ink}`, "stroke-width": 1.3 }));
  const dots = branches.map((branch) => node("circle", { style: `fill: ${INK[branch]}` }));
  const below = node("g", { "aria-hidden": "true" }, rim, ...lines, ...dots), { round, ...rest } = plane({ unit: UNIT, low: -MOST, high: MOST, step: 0.02 });
  const at = ([x, y]) => [UNIT * x, -UNIT * y];
  return {
    below, move: { ...rest, round: (xy) => { const r = Math.hypot(...xy); return round(r > MOST ? xy.map((v) => (v * MOST) / r) : xy); } },
    draw({ drawn }, { choice }) {
      rim.setAttribute("visibility", choice === "disc" ? "visible" : "hidden");
      const paths = INK.map(() => "");
      parents.forEach((parent, k) => {
        if (parent === k) return;
        const ends = [drawn[parent], drawn[k]], along = choice === "disc" ? way(...ends) : ends;
        paths[branches[k]] += `M${along.map((p) => at(p).map((v) => v.toFixed(2)).join(" ")).join("L")}`;
      });
      lines.forEach((line, branch) => line.setAttribute("d", paths[branch]));
      dots.forEach((dot, k) => { const [cx, cy] = at(drawn[k]); for (const [key, v] of Object.entries({ cx, cy, r: leaves.includes(k) ? 5 : 2 })) dot.setAttribute(key, v); });
    },
    said: ({ paper, near, far, error }) => `Two apples are ${short(paper, 3)} apart on the paper and ${short(near, 3)} in the space; apple and milk ${short(far, 3)}. Distances are ${short(error, 3)} % wrong.`,
    tables: () => [["Distances", ["", "edges", "in the space"], [["two apples", "2", ["near"]], ["apple and milk", "6", ["far"]]]]],
    key: [[bar(INK[1], "fruit"), bar(INK[2], "vegetables"), bar(INK[3], "packages")], "Large dots: two apples, and a milk. The radius of the disc on the paper is 1."],
  };
};

export const mount = on(drawing);
export default widget(mount);
