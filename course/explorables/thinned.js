// What training brings over untouched features: a map of classes by photographs, of which one cell is looked at.
import { bar, node, on, plane, widget } from "./stage.js";

const UNIT = 46, EACH = [2, 5, 10, 20, 40], CLASSES = [5, 10, 20, 40, 60], MOST = 12;
const tenths = (v) => v.toFixed(1).replace("-", "−");
const place = (k) => UNIT * (k - 2);

export function compute({ choice, points: [[x, y]] }, { data }) {
  const column = Math.floor(x + 2.5), row = Math.floor(y + 2.5), { mean, low, high } = data[choice];
  return { classes: CLASSES[row], each: EACH[column], mean: mean[row][column], low: low[row][column], high: high[row][column] };
}

const drawing = ({ data }) => {
  const map = node("g"), frame = node("rect", { width: UNIT, height: UNIT, style: "fill: none; stroke: var(--ink)", "stroke-width": 3 });
  const labels = [...EACH.map((n, k) => node("text", { x: place(k), y: 2.5 * UNIT + 16 }, `${n}`)),
    ...CLASSES.map((n, k) => node("text", { x: -2.5 * UNIT - 14, y: 5 - place(k) }, `${n}`)),
    node("text", { x: 0, y: 2.5 * UNIT + 36 }, "photographs of each class"),
    node("text", { x: -2.5 * UNIT - 14, y: -2.5 * UNIT - 8 }, "classes")];
  const below = node("g", { "aria-hidden": "true" }, map, frame, ...labels);
  return {
    below, box: "-156 -140 300 300", move: plane({ unit: UNIT, low: -2, high: 2, step: 0.25 }),
    draw({ classes, each }, { choice }) {
      const { mean, low, high } = data[choice];
      map.replaceChildren(...mean.flatMap((row, r) => row.flatMap((gain, c) => {
        const sure = low[r][c] > 0 || high[r][c] < 0, color = gain > 0 ? "var(--pull)" : "var(--push)";
        return [node("rect", { x: place(c) - UNIT / 2, y: -place(r) - UNIT / 2, width: UNIT, height: UNIT, style: `fill: ${color}`, "fill-opacity": (0.75 * Math.min(1, Math.abs(gain) / MOST)).toFixed(2) }),
          node("text", { x: place(c), y: -9 - place(r), "font-weight": sure ? "bold" : "normal" }, tenths(gain))];
      })));
      frame.setAttribute("x", place(EACH.indexOf(each)) - UNIT / 2);
      frame.setAttribute("y", -place(CLASSES.indexOf(classes)) - UNIT / 2);
    },
    said: ({ classes, each, mean, low, high }) => `${classes} classes of ${each} photographs: ${tenths(mean)} points, from ${tenths(low)} to ${tenths(high)}.`,
    about: ({ classes, each }) => `${classes} classes of ${each} photographs`,
    tables: () => [["This cell", ["classes", "photographs", "gain", "from", "to"], [[["classes"], ["each"], ["mean"], ["low"], ["high"]]]]],
    key: [[bar("var(--pull)", "gains over untouched"), bar("var(--push)", "loses")], "Bold: the 95 % interval leaves out 0, if kinds of product were drawn anew."],
  };
};

export const mount = on(drawing);
export default widget(mount);
