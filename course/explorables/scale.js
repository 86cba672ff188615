// Three proxies on a circle and imagined images around them: how certain a scale is in each direction, and whom it moves.
import { bar, circle, node, on, rad, short, spot, turned, turnedText, widget } from "./stage.js";

const R = 96, BARS = 18, PLACES = [90, 210, 330], INK = ["var(--a)", "var(--b)", "var(--c)"];
const HALF = [-1.959964, -1.439531, -1.150349, -0.934589, -0.755415, -0.597760, -0.453762, -0.318639, -0.189118, -0.062707];
const QUANTILES = [...HALF, ...HALF.map((q) => -q).reverse()];
const OWN = PLACES.flatMap((_, c) => QUANTILES.map(() => c));

export function compute({ numbers: [alpha, spread], points }) {
  const proxies = points.map(([degrees]) => degrees), spots = PLACES.flatMap((place) => QUANTILES.map((q) => place + spread * q));
  const cosines = (at) => proxies.map((p) => Math.cos(rad(at - p)));
  const softmax = (c) => { const top = Math.max(...c), e = c.map((v) => Math.exp(alpha * (v - top))), sum = e.reduce((a, b) => a + b, 0); return e.map((v) => v / sum); };
  const turns = [0, 0, 0];
  let value = 0, mean = 0;
  const images = spots.map((at, i) => {
    const c = cosines(at), P = softmax(c), y = OWN[i], lead = c[y] - Math.max(...c.filter((_, k) => k !== y));
    value -= Math.log(P[y]) / spots.length;
    mean += (100 * P[y]) / spots.length;
    P.forEach((v, k) => { turns[k] += (alpha * (Number(k === y) - v) * Math.sin(rad(at - proxies[k]))) / spots.length; });
    return { lead, force: Math.abs(P.reduce((a, v, k) => a + (Number(k === y) - v) * Math.sin(rad(at - proxies[k])), 0)) };
  });
  const total = (list) => list.reduce((a, { force }) => a + force, 0);
  const grid = Array.from({ length: 360 }, (_, d) => softmax(cosines(d + 0.5)));
  return {
    value, P: mean, share: (100 * total([...images].sort((a, b) => a.lead - b.lead).slice(0, images.length / 4))) / total(images),
    wrong: images.filter(({ lead }) => lead < 0).length, forces: images.map(({ force }) => force), spots,
    sure: grid.map((P) => Math.max(...P)), winner: grid.map((P) => P.indexOf(Math.max(...P))), turns,
  };
}

const drawing = () => {
  const rays = Array.from({ length: 360 }, (_, d) => {
    const [[a, b], [c, e]] = [spot(d, R), spot(d + 1, R)];
    return node("path", { d: `M0 0L${a} ${b}L${c} ${e}z`, "shape-rendering": "crispEdges" });
  });
  const bars = OWN.map((c) => node("line", { "stroke-width": 2.4, style: `stroke: ${INK[c]}` })), turning = node("g");
  const arrows = PLACES.map((_, c) => node("line", { x1: 0, y1: 0, "stroke-width": 3, style: `stroke: ${INK[c]}` }));
  const below = node("g", { "aria-hidden": "true" }, ...rays, ...arrows, node("circle", { class: "ring", r: 100 }), ...bars, turning);
  return {
    below, box: "-146 -146 292 292", move: circle(),
    draw({ sure, winner, forces, spots, turns }, { numbers: [alpha], points }) {
      rays.forEach((ray, d) => ray.setAttribute("style", `fill: ${INK[winner[d]]}; fill-opacity: ${(0.75 * Math.max(0, sure[d] - 1 / 3)).toFixed(3)}`));
      bars.forEach((line, i) => {
        const [[x1, y1], [x2, y2]] = [106, 108 + BARS * forces[i]].map((r) => spot(spots[i], r + 3 * (OWN[i] - 1)));
        for (const [key, number] of Object.entries({ x1, y1, x2, y2 })) line.setAttribute(key, number);
      });
      points.forEach(([degrees], c) => { const [x2, y2] = spot(degrees); arrows[c].setAttribute("x2", x2); arrows[c].setAttribute("y2", y2); });
      turning.replaceChildren(...turned(turns, points, Math.max(alpha / 4, 1e-9)));
    },
    said: ({ share, wrong, forces }) => `${forces.filter((v) => v > 0.1).length} of 60 images feel a force of more than a tenth of α; the hardest quarter has ${short(share, 3)} % of all force. ${wrong} are on the wrong side.`,
    about: (answer, i) => `of class ${i}, ${turnedText(answer, i)}`,
    tables: () => [["Force on each image, over α", ["image", "class 0", "class 1", "class 2"], QUANTILES.map((_, k) => [`${k + 1}`, ...PLACES.map((_, c) => [`forces.${20 * c + k}`])])],
      ["Proxies", ["", "turned by"], PLACES.map((_, c) => [`${c}`, [`turns.${c}`]])]],
    key: [INK.map((ink, c) => bar(ink, `class ${c}`)), "A bar outside: the force on an image along the circle, over α. Pale: the classifier is uncertain. Arrows: how the images turn the proxies."],
  };
};

export const mount = on(drawing);
export default widget(mount);
