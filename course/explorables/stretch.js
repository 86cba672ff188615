// Photographs in a plane after a head that stretches one direction; each query is joined with what is nearest.
import { bar, circle, node, on, spot, widget } from "./stage.js";

const inward = (i) => (i % 8 < 4 ? "var(--b)" : "var(--c)"); // cartons, fruit

export function compute({ numbers: [a], points: [[degrees]] }, { data }) {
  const u = [Math.cos((degrees * Math.PI) / 180), Math.sin((degrees * Math.PI) / 180)];
  const at = data.at.map((z) => { const along = (a - 1) * (z[0] * u[0] + z[1] * u[1]); return [z[0] + along * u[0], z[1] + along * u[1]]; });
  const nearest = at.slice(0, 8).map(([x, y]) => {
    const far = at.slice(8).map(([v, w]) => (x - v) ** 2 + (y - w) ** 2);
    return far.indexOf(Math.min(...far));
  });
  const right = nearest.map((k, i) => (k === i ? 100 : 0)), mean = (part) => part.reduce((s, v) => s + v, 0) / part.length;
  return { at, nearest, right, cartons: mean(right.slice(0, 4)), fruit: mean(right.slice(4)) };
}

const drawing = () => {
  const lines = node("g"), marks = node("g"), axis = node("line", { style: "stroke: var(--ink)", "stroke-width": 1.5, "stroke-dasharray": "2 5" });
  const below = node("g", { "aria-hidden": "true" }, node("circle", { class: "ring", r: 100 }), axis, lines, marks,
    node("text", { x: 0, y: 150 }, "0°: what is printed · 90°: shape"));
  return {
    below, box: "-156 -156 312 318", move: circle(),
    draw({ at, nearest, right }, { points: [[degrees]] }) {
      const unit = 92 / Math.max(...at.map(([x, y]) => Math.hypot(x, y))), place = ([x, y]) => [unit * x, -unit * y];
      const [x, y] = spot(degrees);
      for (const [name, value] of Object.entries({ x1: -x, y1: -y, x2: x, y2: y })) axis.setAttribute(name, value);
      lines.replaceChildren(...nearest.map((k, i) => {
        const [x1, y1] = place(at[i]), [x2, y2] = place(at[8 + k]);
        return node("line", { x1, y1, x2, y2, style: `stroke: var(${right[i] ? "--pull" : "--push"})`, "stroke-width": 2.5, "stroke-dasharray": right[i] ? "" : "3 3" });
      }));
      marks.replaceChildren(...at.map((z, i) => {
        const [cx, cy] = place(z), style = `stroke: ${inward(i)}; fill: ${i < 8 ? "var(--panel)" : inward(i)}`;
        return i % 8 < 4 ? node("circle", { cx, cy, r: 5, style, "stroke-width": 2 }) : node("rect", { x: cx - 4.5, y: cy - 4.5, width: 9, height: 9, style, "stroke-width": 2 });
      }));
    },
    said: ({ cartons, fruit }, { points: [[degrees]] }) => `Stretched along ${degrees.toFixed(0)} degrees: ${cartons.toFixed(0)} % of the cartons and ${fruit.toFixed(0)} % of the fruit are found.`,
    about: (_, i) => (i ? "" : "the direction that is stretched"),
    tables: () => [["Found", ["cartons", "fruit"], [[["cartons"], ["fruit"]]]]],
    key: [[bar("var(--pull)", "the nearest is right"), bar("var(--push)", "wrong")], "Circles: cartons; squares: fruit. Hollow: queries; filled: photographs of another visit. The picture is scaled to its circle."],
  };
};

export const mount = on(drawing);
export default widget(mount);
