// Who feels the point that SEE adds: a sample, its mirror image about its proxy, and two proxies of other classes.
import { bar, circle, node, on, rad, short, spot, turned, widget } from "./stage.js";

const R = 100, OWN = 90;

/** Probabilities of the three classes at a place, and the slope of the loss as this place turns. */
function seen(at, proxies, alpha) {
  const raw = proxies.map((q) => Math.exp(alpha * (Math.cos(rad(at - q)) - 1))), sum = raw.reduce((a, b) => a + b);
  const share = raw.map((v) => v / sum);
  const slope = alpha * (Math.sin(rad(at - OWN)) - share.reduce((all, p, k) => all + p * Math.sin(rad(at - proxies[k])), 0));
  return { share, slope, push: [1, 2].map((k) => -alpha * share[k] * Math.sin(rad(at - proxies[k]))) };
}

export function compute({ choice, numbers: [lam, alpha], points }) {
  const [x, ...others] = points.map(([degrees]) => degrees), proxies = [OWN, ...others], z = 2 * OWN - x;
  const real = seen(x, proxies, alpha), again = seen(z, proxies, alpha);
  const bySample = [-real.slope, ...real.push], byPoint = [choice === "paper" ? again.slope : 0, ...again.push].map((v) => lam * v);
  return { by_sample: bySample, by_point: byPoint, turns: bySample.map((v, i) => v + byPoint[i]), point: z, right: again.share[0] };
}

const drawing = () => {
  const marks = node("g"), below = node("g", { "aria-hidden": "true" }, node("circle", { class: "ring", r: R }), marks);
  let peak = 0;
  const STAR = "M0-9L2.4-2.8 9-2.8 3.8 1.4 5.6 8 0 4.2-5.6 8-3.8 1.4-9-2.8-2.4-2.8Z";
  return {
    below, move: circle(),
    begin() { peak = 0; },
    draw({ turns, by_sample: own, by_point: made, point }, { points }) {
      peak = Math.max(peak, ...turns.map(Math.abs));
      const unit = Math.max(...turns.map(Math.abs), peak / 8, 1e-9);
      const at = (degrees, r, d, style) => { const [x, y] = spot(degrees, r); return node("path", { d, transform: `translate(${x} ${y})`, style }); };
      const [[x1, y1], [x2, y2]] = [spot(points[0][0]), spot(point)], [px, py] = spot(OWN, R + 20), [zx, zy] = spot(point, R + 18);
      marks.replaceChildren(
        node("line", { x1, y1, x2, y2, "stroke-dasharray": "3 4", style: "stroke: var(--soft); stroke-width: 1.3" }),
        at(OWN, R, STAR, "fill: var(--ink)"), node("text", { x: px, y: py, "text-anchor": "middle" }, "p̂"),
        at(point, R, "M0-7L6.5 5H-6.5Z", "fill: var(--push)"), node("text", { x: zx, y: zy, "text-anchor": "middle" }, "z"),
        ...own.flatMap((v, i) => [[v, 72, "var(--pull)"], [made[i], 58, "var(--push)"]].map(([size, r, ink]) => {
          const [[a, b], [c, d]] = [spot(points[i][0], r), spot(points[i][0] + Math.max(-60, Math.min(60, (40 * size) / unit)), r)];
          return node("path", { d: `M${a} ${b}A${r} ${r} 0 0 ${size > 0 ? 0 : 1} ${c} ${d}`, fill: "none", style: `stroke: ${ink}; stroke-width: 5` });
        })),
        ...turned(turns, points, unit));
    },
    said({ by_point: made, right }) {
      const most = Math.abs(made[1]) > Math.abs(made[2]) ? 1 : 2, name = ["x", "q̂₁", "q̂₂"][most];
      const near = Math.abs(made[most]) < 0.005 ? "The point pushes no proxy" : `The point pushes ${name} most, ${short(Math.abs(made[most]), 3)}`;
      return `${near}; its class has ${short(right, 2)} there. ${Math.abs(made[0]) < 5e-4 ? "The sample does not feel it." : "The sample feels it, too."}`;
    },
    about: ({ turns }, i) => `force ${short(turns[i], 3)}`,
    tables: () => [["Force along the circle, + counterclockwise", ["on", "by the sample", "by the point"],
      ["x", "q̂₁", "q̂₂"].map((name, i) => [name, [`by_sample.${i}`], [`by_point.${i}`]])]],
    key: [[bar("var(--pull)", "by the sample"), bar("var(--push)", "by the point")],
      "Arcs inside: forces by their source; arrow: their sum. Triangle: the point z, as near to p̂ as x is."],
  };
};

export const mount = on(drawing);
export default widget(mount);
