// A batch of 64 images as a square: who meets a partner, and who a class that looks like its own.
import { bar, node, on, short, widget } from "./stage.js";

const SIZE = 64, CLASSES = 300, SIDE = 280, CELL = SIDE / SIZE;

/** The probability that none of so many draws, without replacement, is special. */
function none(special, others, draws) {
  let p = 1;
  for (let k = 0; k < draws; k++) p *= Math.max(0, others - k) / Math.max(1, special + others - k);
  return p;
}

export function compute({ choice, numbers }) {
  const given = numbers.map(Math.round);
  if (choice === "pk") {
    const [K, alike] = given, classes = SIZE / K, met = 1 - none(alike, CLASSES - 1 - alike, classes - 1);
    return { classes, positives: K - 1, negatives: ((SIZE - K) * alike) / (CLASSES - 1), triplets: (SIZE * (K - 1) * (SIZE - K)) / 1000, met: 100 * met, useful: K > 1 ? 100 * met : 0 };
  }
  const [total, images, alike] = given, m = SIZE - 1, own = images - 1, like = alike * images, rest = total * images - 1;
  const alone = none(own, rest - own, m), unmet = none(like, rest - like, m);
  return {
    classes: total * (1 - none(images, rest + 1 - images, SIZE)), positives: (m * own) / rest, negatives: (m * like) / rest,
    triplets: (((SIZE * m * (m - 1) * own) / rest) * (rest - own)) / (rest - 1) / 1000, met: 100 * (1 - unmet), useful: 100 * (1 - alone - unmet + none(own + like, rest - own - like, m)),
  };
}

/** One batch as classes of its images, class after class; the same numbers give the same batch. */
function drawn(choice, numbers) {
  let seed = 7;
  const below = (n) => { seed = (Math.imul(seed, 1664525) + 1013904223) >>> 0; return Math.floor((seed / 2 ** 32) * n); };
  const [first, images] = numbers.map(Math.round), taken = new Map();
  if (choice === "pk") while (taken.size < SIZE / first) taken.set(below(CLASSES), first);
  else {
    const seen = new Set();
    while (seen.size < SIZE) seen.add(below(first * images));
    for (const image of seen) { const c = Math.floor(image / images); taken.set(c, (taken.get(c) ?? 0) + 1); }
  }
  return [...taken].sort((a, b) => b[1] - a[1] || a[0] - b[0]);
}

const drawing = () => {
  const alike = node("path", { style: "fill: var(--push)" }), partners = node("path", { style: "fill: var(--pull)" });
  const below = node("g", { "aria-hidden": "true" }, node("rect", { width: SIDE, height: SIDE, style: "fill: var(--panel); stroke: var(--line)" }), alike, partners,
    node("text", { x: SIDE / 2, y: SIDE + 20 }, "64 images, class by class"));
  const block = (a, b) => `M${(a[0] * CELL).toFixed(2)} ${(b[0] * CELL).toFixed(2)}h${(a[1] * CELL).toFixed(2)}v${(b[1] * CELL).toFixed(2)}h${(-a[1] * CELL).toFixed(2)}z`;
  return {
    below, box: "-4 -4 288 310", move: {},
    draw(_, { choice, numbers }) {
      const most = numbers.at(-1) / 2, total = choice === "pk" ? CLASSES : Math.round(numbers[0]), runs = [];
      for (const [c, count] of drawn(choice, numbers)) runs.push({ c, at: [runs.length ? runs.at(-1).at[0] + runs.at(-1).at[1] : 0, count] });
      const near = (a, b) => { const apart = Math.abs(a - b); return Math.min(apart, total - apart) <= most; }; // look-alikes stand beside a class in a ring
      partners.setAttribute("d", runs.filter(({ at }) => at[1] > 1).map(({ at }) => block(at, at)).join(""));
      alike.setAttribute("d", runs.flatMap((a) => runs.filter((b) => a.c !== b.c && near(a.c, b.c)).map((b) => block(a.at, b.at))).join(""));
    },
    said: ({ positives, met, useful }) => `${short(positives, 3)} partners of an image; ${short(met, 3)} % of the images meet a look-alike, ${short(useful, 3)} % have a partner, too.`,
    tables: () => [["Means over all batches", ["", ""], [["images of look-alikes that an image meets", ["negatives"]], ["images that meet one (%)", ["met"]]]]],
    key: [[bar("var(--pull)", "of one class"), bar("var(--push)", "of classes that look alike")], "One batch is drawn; the numbers are means over all."],
  };
};

export const mount = on(drawing);
export default widget(mount);
