// One photograph in the plane: which queries it takes, and what they are answered once it is deleted.
import { node, on, plane, short, widget } from "./stage.js";

const UNIT = 100, at = ([x, y]) => [UNIT * x, -UNIT * y];
const nearest = ([x, y], photographs) => photographs.reduce(([best, least], [a, b], j) => {
  const far = (x - a) ** 2 + (y - b) ** 2;
  return far < least ? [j, far] : [best, least];
}, [0, Infinity])[0];

export function compute({ points }, { data: { queries, own, other } }) {
  const fixed = [...own, ...other], first = queries.map((q) => nearest(q, [...fixed, points[0]])), after = queries.map((q) => nearest(q, fixed));
  const count = (test) => first.filter((_, i) => test(first[i], after[i])).length;
  return {
    failures: count((a) => a >= own.length), taken: count((a) => a === fixed.length),
    repaired: count((a, b) => a === fixed.length && b < own.length), left: count((_, b) => b >= own.length), first, after,
  };
}

const square = (place, ink) => { const [x, y] = at(place); return node("rect", { x: x - 7, y: y - 7, width: 14, height: 14, style: `fill: ${ink}` }); };

const drawing = ({ data: { queries, own, other } }) => {
  const fixed = [...own, ...other], lines = node("g");
  const below = node("g", { "aria-hidden": "true" }, lines, ...own.map((p) => square(p, "var(--pull)")), ...other.map((p) => square(p, "var(--push)")),
    ...queries.map((q) => { const [cx, cy] = at(q); return node("circle", { cx, cy, r: 5, style: "fill: var(--panel); stroke: var(--pull)", "stroke-width": 2.5 }); }));
  return {
    below, box: "-136 -100 272 200", move: plane({ unit: UNIT, low: -1.2, high: 1.2 }),
    draw({ first, after }, { points: [handle] }) {
      const line = (i, to, dotted) => {
        const [[x1, y1], [x2, y2]] = [at(queries[i]), at(to === fixed.length ? handle : fixed[to])], right = to < own.length;
        return node("line", { x1, y1, x2, y2, "stroke-width": dotted ? 1.6 : 2.2, style: `stroke: var(${right ? "--pull" : "--push"})${dotted ? "; stroke-dasharray: 2 5" : ""}` });
      };
      lines.replaceChildren(...first.flatMap((to, i) => [line(i, to, false), ...(to === fixed.length ? [line(i, after[i], true)] : [])]));
    },
    said: ({ failures, taken, repaired, left }) => `${short(failures)} of 8 queries fail. The photograph took ${short(taken)}. If it is deleted, ${short(repaired)} of these find their product, and ${short(left)} queries still fail.`,
    about: ({ taken }) => `takes ${short(taken)} queries`,
    tables: () => [["Queries", ["", "of 8"], [["fail", ["failures"]], ["taken by the photograph", ["taken"]], ["repaired if it is deleted", ["repaired"]], ["fail still", ["left"]]]]],
    key: ["Circles: queries of the blue product. Squares: photographs, orange of another product. A line leads to the answer; dotted, to the answer after deletion."],
  };
};

export const mount = on(drawing);
export default widget(mount);
