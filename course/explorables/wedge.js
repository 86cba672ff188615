// Two proxies and a margin: where each class is content, the wedge in which none is, and forty held-out images.
import { bar, circle, node, on, rad, spot, widget } from "./stage.js";

const GRID = 3600, R = 100, FREE = "var(--soft)";
const QUANTILES = [-1.959964, -1.439531, -1.150349, -0.934589, -0.755415, -0.597760, -0.453762, -0.318639, -0.189118, -0.062707]
  .flatMap((q, k, all) => [q, -all[all.length - 1 - k]]).sort((a, b) => a - b);

function target(name, theta, m) {
  if (name === "cosface") return Math.cos(theta) - m;
  if (name === "arcface") return theta + m <= Math.PI ? Math.cos(theta + m) : Math.cos(theta) - m * Math.sin(m);
  if (name === "sphereface") {
    const k = Math.min(Math.floor((m * theta) / Math.PI), m - 1);
    return (k % 2 ? -1 : 1) * Math.cos(m * theta) - 2 * k;
  }
  return Math.cos(theta);
}
const angle = (a, b) => rad(Math.abs(((((a - b + 180) % 360) + 360) % 360) - 180));

export function compute({ choice, numbers: [m, spread], points }) {
  const [p, q] = points.map(([degrees]) => degrees), apart = (angle(p, q) * 180) / Math.PI;
  let free = 0;
  const areas = Array.from({ length: GRID }, (_, k) => {
    const at = ((k + 0.5) * 360) / GRID, [a, b] = [angle(at, p), angle(at, q)];
    const first = target(choice, a, m) > Math.cos(b), second = target(choice, b, m) > Math.cos(a);
    if (!first && !second && ((a + b) * 180) / Math.PI < apart * (1 + 1e-6) + 1e-9) free += 1;
    return Number(first) + 2 * Number(second);
  });
  const spots = [p, q].map((own) => QUANTILES.map((z) => own + z * spread));
  const seen = spots.flatMap((row, c) => row.map((at) => (c ? [angle(at, q), angle(at, p)] : [angle(at, p), angle(at, q)])));
  return {
    apart, wedge: (free * 360) / GRID, crossed: seen.filter(([own, other]) => own > other).length,
    asked: seen.filter(([own, other]) => !(target(choice, own, m) > Math.cos(other))).length, areas, spots,
  };
}

const drawing = () => {
  const sectors = node("g"), dots = node("g"), below = node("g", { "aria-hidden": "true" }, sectors, dots, node("circle", { class: "ring", r: R }));
  const INK = [FREE, "var(--a)", "var(--b)", "var(--a)"];
  return {
    below, move: circle({ r: R }),
    draw({ areas, spots }, { points }) {
      const runs = [];
      areas.forEach((area, k) => { if (runs.at(-1)?.area === area) runs.at(-1).end = k + 1; else runs.push({ area, begin: k, end: k + 1 }); });
      sectors.replaceChildren(...runs.map(({ area, begin, end }) => {
        const [from, to] = [begin, end].map((k) => (k * 360) / GRID), [[a, b], [c, d]] = [spot(from, R), spot(Math.min(to, from + 359.9), R)];
        return node("path", { d: `M0 0L${a} ${b}A${R} ${R} 0 ${to - from > 180 ? 1 : 0} 0 ${c} ${d}z`, style: `fill: ${INK[area]}; fill-opacity: ${area ? 0.28 : 0.4}` });
      }));
      dots.replaceChildren(
        ...points.map(([degrees], c) => { const [x2, y2] = spot(degrees, R); return node("line", { x1: 0, y1: 0, x2, y2, "stroke-width": 3, style: `stroke: ${INK[c + 1]}` }); }),
        ...spots.flatMap((row, c) => row.map((at) => { const [cx, cy] = spot(at, R + 12 + 9 * c); return node("circle", { cx, cy, r: 3, style: `fill: ${INK[c + 1]}` }); })));
    },
    said: ({ apart, wedge, crossed, asked }) => (wedge > apart - 0.2 ? "The wedge fills all of the arc: no image between the proxies can content its class. " : "")
      + `${crossed} of 40 images lie across the border; the loss asks ${asked} to move.`,
    about: (_, i) => `proxy of class ${i + 1}`,
    tables: ({ spots }) => [["Held-out images, degrees", ["", "class 1", "class 2"], spots[0].map((_, k) => [`${k + 1}`, [`spots.0.${k}`], [`spots.1.${k}`]])]],
    key: [[bar("var(--a)", "class 1 content"), bar("var(--b)", "class 2 content"), bar(FREE, "none content")], "Dots outside: held-out images of each class, normally spread around its proxy."],
  };
};

export const mount = on(drawing);
export default widget(mount);
