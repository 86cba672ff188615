// A query among the images of three classes: the softmax over squared distances pushes it from the expected image to the own one.
import { arrow, bar, node, on, plane, short, widget } from "./stage.js";

const UNIT = 80, SEEN = 22;

export function compute({ choice, numbers: [T], points: [f, ...images] }) {
  const mean = (i) => [0, 1].map((k) => (images[i - (i % 2)][k] + images[i - (i % 2) + 1][k]) / 2);
  const at = images.map((s, i) => (choice === "mean" ? mean(i) : s));
  const logits = at.map((c) => -((f[0] - c[0]) ** 2 + (f[1] - c[1]) ** 2) / T);
  const softmax = (v) => { const top = Math.max(...v), e = v.map((x) => Math.exp(x - top)), sum = e.reduce((a, b) => a + b, 0); return [e.map((x) => x / sum), top + Math.log(sum)]; };
  const [counts, all] = softmax(logits), [near, own] = softmax(logits.slice(0, 2)), p = [0, 2, 4].map((i) => counts[i] + counts[i + 1]);
  const weigh = (w) => [0, 1].map((k) => w.reduce((a, v, i) => a + v * at[i][k], 0));
  const expected = weigh(counts), to = weigh(near), force = [0, 1].map((k) => (2 / T) * (to[k] - expected[k]));
  return { value: all - own, p, own: p[0], counts, expected, to, force, length: Math.hypot(...force) };
}

const drawing = () => {
  const lines = node("g"), below = node("g", { "aria-hidden": "true" }, lines), at = ([x, y]) => [UNIT * x, -UNIT * y];
  return {
    below, move: plane({ unit: UNIT, low: -1.8, high: 1.8, step: 0.05 }),
    draw({ counts, expected, to, force }, { choice, points }) {
      const [q, ...images] = points.map(at), from = at(expected), own = at(to);
      const ends = choice === "mean" ? [0, 2, 4].map((i) => [0, 1].map((k) => (images[i][k] + images[i + 1][k]) / 2)) : images;
      const each = 6 / ends.length, width = (i) => (each > 1 ? counts[2 * i] + counts[2 * i + 1] : counts[i]), kind = (i) => `c${each > 1 ? i : i >> 1}`;
      lines.replaceChildren(
        ...(each > 1 ? images.map(([x1, y1], i) => node("line", { x1, y1, x2: ends[i >> 1][0], y2: ends[i >> 1][1], class: kind(i >> 1), style: "stroke: var(--own)" })) : []),
        ...ends.map(([x2, y2], i) => node("line", { x1: q[0], y1: q[1], x2, y2, class: kind(i), style: "stroke: var(--own)", "stroke-width": (10 * width(i)).toFixed(2), opacity: 0.45 })),
        node("line", { x1: from[0], y1: from[1], x2: own[0], y2: own[1], style: "stroke: var(--soft)", "stroke-dasharray": "4 4" }),
        node("circle", { cx: from[0], cy: from[1], r: 6, style: "fill: none; stroke: var(--soft); stroke-width: 2" }),
        ...arrow(q, [SEEN * force[0], -SEEN * force[1]]));
    },
    said({ p, counts, length }) {
      if (length < 0.02) return `P ${p.map((v) => short(v, 2)).join(", ")}. No force: the expected place is the own place.`;
      return `P ${p.map((v) => short(v, 2)).join(", ")}. Of its own two images the query counts ${counts.slice(0, 2).map((v) => short(v, 2)).join(" and ")}.`;
    },
    about: ({ counts }, i) => (i ? `counts ${short(counts[i - 1], 2)}` : "of class 0"),
    tables: () => [["Probabilities", ["class", "P", "image 1", "image 2"], [0, 1, 2].map((i) => [`${i}`, [`p.${i}`], [`counts.${2 * i}`], [`counts.${2 * i + 1}`]])],
      ["Expected place, own place, force", ["", "x", "y"], [["expected", ["expected.0"], ["expected.1"]], ["own", ["to.0"], ["to.1"]], ["force", ["force.0"], ["force.1"]]]]],
    key: [[bar("var(--ink)", "force on the query"), bar("var(--soft)", "ring: the expected place")], "Width of a line: what that class, or image, counts."],
  };
};

export const mount = on(drawing);
export default widget(mount);
