// SEE's points on a sphere that turns: the sample, its synthetic points on the circle of latitude, and the proxy.
import { circle, node, on, rad, short, widget } from "./stage.js";

const COUNT = { one: 1, two: 2, three: 3 }, R = 100, TILT = rad(32);

export function compute({ choice, numbers: [theta], points: [[turned]] }) {
  const n = COUNT[choice], side = Math.sin(rad(theta)) * Math.sqrt((2 * (n + 1)) / n), all = Array.from({ length: n + 1 });
  return {
    angles: all.map(() => theta), apart: all.map((_, i) => all.map((__, j) => (i === j ? 0 : side))), side,
    chord: 2 * Math.sin(rad(theta) / 2), needs: n + 1, turned,
  };
}

/** Corners of a regular simplex of n + 1 points, of length 1, in three dimensions at most. */
const simplex = (n) => (n < 3 ? Array.from({ length: n + 1 }, (_, k) => [Math.cos((2 * Math.PI * k) / (n + 1)), Math.sin((2 * Math.PI * k) / (n + 1)), 0])
  : [[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]].map((v) => v.map((x) => x / Math.sqrt(3))));

const drawing = () => {
  const scene = node("g"), below = node("g", { "aria-hidden": "true" }, node("circle", { r: R, style: "fill: var(--panel)" }), scene, node("circle", { class: "ring", r: R }));
  const seen = (turned) => ([x, y, z]) => { // to the right, down, towards the reader
    const a = rad(turned), u = x * Math.cos(a) - y * Math.sin(a), v = x * Math.sin(a) + y * Math.cos(a);
    return [R * u, -R * (z * Math.cos(TILT) + v * Math.sin(TILT)), z * Math.sin(TILT) - v * Math.cos(TILT)];
  };
  const path = (places, style, closed = false) => places.map((from, k) => [from, places[k + 1] ?? (closed ? places[0] : null)]).filter(([, to]) => to)
    .map(([[x1, y1, z1], [x2, y2, z2]]) => node("line", { x1, y1, x2, y2, style: `${style}; opacity: ${z1 + z2 < 0 ? 0.35 : 1}`, "stroke-linecap": "round" }));
  const mark = ([x, y, z], name, shape) => [node("path", { d: shape, transform: `translate(${x} ${y})`, style: `fill: ${name === "x" ? "var(--pull)" : name === "p̂" ? "var(--ink)" : "var(--push)"}; stroke: var(--paper); opacity: ${z < 0 ? 0.5 : 1}` }),
    node("text", { x: x + 14, y: y - 7 }, name)];
  const DISC = "M-6 0a6 6 0 1 0 12 0a6 6 0 1 0-12 0", TRIANGLE = "M0-7L6.5 5H-6.5Z", STAR = "M0-9L2.4-2.8 9-2.8 3.8 1.4 5.6 8 0 4.2-5.6 8-3.8 1.4-9-2.8-2.4-2.8Z";
  return {
    below, move: circle({ r: 132 }),
    draw(_, { choice, numbers: [theta], points: [[turned]] }) {
      const n = COUNT[choice], at = seen(turned), [c, s] = [Math.cos(rad(theta)), Math.sin(rad(theta))];
      const flat = n === 3, corners = simplex(n).map(([x, y, z]) => at(flat ? [s * x, s * y, s * z] : [s * x, s * y, c]));
      const proxy = at(flat ? [0, 0, 0] : [0, 0, 1]), middle = at(flat ? [0, 0, 0] : [0, 0, c]);
      const latitude = Array.from({ length: 73 }, (__, k) => at([s * Math.cos(rad(5 * k)), s * Math.sin(rad(5 * k)), c]));
      const edges = corners.flatMap((a, i) => corners.slice(i + 1).map((b) => [a, b]));
      scene.replaceChildren(
        ...(flat ? [node("circle", { r: R * s, class: "ring", "stroke-dasharray": "3 4" })] : path(latitude, "stroke: var(--soft); stroke-width: 1.3")),
        ...corners.flatMap((corner) => path([middle, corner], "stroke: var(--line); stroke-width: 1.2")),
        ...edges.flatMap((edge) => path(edge, "stroke: var(--push); stroke-width: 2")),
        ...mark(proxy, "p̂", STAR), ...corners.flatMap((corner, k) => mark(corner, k ? `z${"₀₁₂₃₄"[k]}` : "x", k ? TRIANGLE : DISC)));
    },
    said({ side, chord }, { choice }) {
      const beside = Math.abs(side - chord) < 0.02 ? "as long as" : side > chord ? "longer than" : "shorter than";
      return `${choice === "three" ? "The ball of directions orthogonal to the proxy. " : ""}A side is ${short(side, 3)}, ${beside} the way from sample to proxy, ${short(chord, 3)}.`;
    },
    about: () => "turns the picture",
    tables: ({ angles }) => [
      ["Angle to the proxy", ["point", "degrees"], angles.map((_, i) => [i ? `z${i + 1}` : "x", [`angles.${i}`]])],
      ["Distance", ["from x to", ""], angles.slice(1).map((_, i) => [`z${i + 2}`, [`apart.0.${i + 1}`]])]],
    key: ["Star: the proxy p̂. Disc: the sample x. Triangles: SEE's points. The dot outside turns the picture."],
    play: { label: "Turn", begin() {}, step: (_, { points: [[turned]] }) => [[turned + 1.5]] },
  };
};

export const mount = on(drawing);
export default widget(mount);
