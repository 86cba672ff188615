// A vote of members: cosines of the own and of another product become narrower, down to what all members share.
import { along, bar, node, on, short, widget } from "./stage.js";

const LEFT = -140, WIDE = 280, BASE = 80, HIGH = 150, FROM = -3, TO = 6;
const x = (v) => LEFT + (WIDE * (v - FROM)) / (TO - FROM);
const GRID = Array.from({ length: 181 }, (_, k) => FROM + ((TO - FROM) * k) / 180);

/** The normal distribution function for v <= 0, by its continued fraction far out and its series near 0. */
function below(v) {
  const z = -v, density = Math.exp((-z * z) / 2) / Math.sqrt(2 * Math.PI);
  if (z > 3) { let tail = z; for (let k = 60; k; k--) tail = z + k / tail; return density / tail; }
  let term = z, all = z;
  for (let k = 1; k < 80; k++) all += term *= (z * z) / (2 * k + 1);
  return 0.5 - density * all;
}

export function compute({ numbers: [E, rho], points: [[gap]] }) {
  const spread = Math.sqrt(rho + (1 - rho) / E), floor = Math.sqrt(rho), wrong = (width) => 100 * below(-gap / (Math.SQRT2 * width));
  return { spread, floor, alone: wrong(1), wrong: wrong(spread), limit: wrong(Math.max(floor, 1e-6)), as_good: gap / spread };
}

const drawing = () => {
  const filled = [node("path", { style: "fill: var(--push); fill-opacity: .4; stroke: var(--push)" }), node("path", { style: "fill: var(--pull); fill-opacity: .4; stroke: var(--pull)" })];
  const thin = [0, 1].map(() => node("path", { fill: "none", "stroke-dasharray": "4 4", style: "stroke: var(--soft); stroke-width: 1.4" }));
  const [other, own] = ["other product", "own product"].map((said) => node("text", { y: BASE + 20 }, said));
  const below = node("g", { "aria-hidden": "true" }, ...filled, ...thin, node("path", { class: "axis", d: `M${LEFT} ${BASE}h${WIDE}` }), other, own,
    node("text", { x: 0, y: BASE + 42 }, "cosine with the query, in spreads of one member"));
  return {
    below, box: "-156 -110 312 240",
    move: along({ from: [x(0.1), BASE], to: [x(4), BASE], low: 0.1, high: 4, step: 0.02 }),
    draw({ spread }, { points: [[gap]] }) {
      const bell = (at, width, close) => {
        const high = HIGH * Math.min(1, 0.55 / width); // a cut top: bells of nothing but noise become needles
        const line = GRID.map((v, k) => `${k || close ? "L" : "M"}${x(v).toFixed(1)} ${(BASE - high * Math.exp(-(((v - at) / width) ** 2) / 2)).toFixed(1)}`).join("");
        return close ? `M${LEFT} ${BASE}${line}V${BASE}z` : line;
      };
      [0, gap].forEach((at, k) => { filled[k].setAttribute("d", bell(at, Math.max(spread, 0.02), true)); thin[k].setAttribute("d", bell(at, 1, false)); });
      const apart = Math.max(0, (3 - gap) / 2); // the two names do not meet
      [other, own].forEach((name, k) => name.setAttribute("x", k ? x(gap + apart) : x(-apart)));
    },
    said: ({ wrong, as_good: good }) => `The vote puts another product before the own one in ${short(wrong, 3)} of 100 pairs. One network is as good with a gap of ${short(good, 3)}.`,
    about: ({ alone }) => `one member is wrong in ${short(alone, 3)} %`,
    tables: () => [["The vote", ["", "is"], [["spread of the vote", ["spread"]], ["spread of very many", ["floor"]], ["gap of one network as good", ["as_good"]]]]],
    key: [[bar("var(--push)", "another product"), bar("var(--pull)", "the own product")], "Dashed: one member. The handle is the gap."],
  };
};

export const mount = on(drawing);
export default widget(mount);
