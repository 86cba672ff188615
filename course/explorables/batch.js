// A batch of 64 images as a sheet: who meets a partner, and who a class that looks like its own.
import { bar, node, on, short, widget } from "./stage.js";

const SIZE = 64, CLASSES = 300, ROW = 8, CELL = 36, SIDE = ROW * CELL;

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

const drawing = ({ data }) => {
  const place = (k) => ({ x: CELL * (k % ROW), y: CELL * Math.floor(k / ROW) });
  const images = Array.from({ length: SIZE }, (_, k) => node("image", { ...place(k), width: CELL, height: CELL, filter: "url(#ink)" })), frames = node("g");
  const below = node("g", { "aria-hidden": "true" }, frames, ...images, node("text", { x: SIDE / 2, y: SIDE + 20 }, "64 images, class by class"));
  return {
    below, box: "-4 -4 296 318", move: {},
    draw(_, { choice, numbers }) {
      const most = numbers.at(-1) / 2, total = choice === "pk" ? CLASSES : Math.round(numbers[0]), all = drawn(choice, numbers);
      const near = (a, b) => { const apart = Math.abs(a - b); return Math.min(apart, total - apart) <= most; }; // look-alikes stand beside a class in a ring
      const shown = all.flatMap(([c, count]) => Array(count).fill({ c, alone: count === 1, alike: all.some(([other]) => other !== c && near(other, c)) })).slice(0, SIZE);
      images.forEach((image, k) => {
        image.setAttribute("href", data.glyphs[shown[k].c % CLASSES]);
        image.setAttribute("opacity", shown[k].alone ? 0.3 : 1);
      });
      const frame = (k, stroke, inset) => node("rect", { x: place(k).x + inset, y: place(k).y + inset, width: CELL - 2 * inset, height: CELL - 2 * inset, fill: "none", stroke, "stroke-width": 1.6 });
      frames.replaceChildren(...shown.flatMap(({ c, alike }, k) => [
        ...(c === shown[0].c ? [frame(k, k ? "var(--pull)" : "var(--ink)", 1.5)] : []), // the anchor, and its partners
        ...(alike ? [frame(k, "var(--push)", c === shown[0].c ? 4 : 1.5)] : []),
      ]));
    },
    said: ({ positives, met, useful }) => `${short(positives, 3)} partners of an image; ${short(met, 3)} % of the images meet a look-alike, ${short(useful, 3)} % have a partner, too.`,
    tables: () => [["Means over all batches", ["", ""], [["images of look-alikes that an image meets", ["negatives"]], ["images that meet one (%)", ["met"]]]]],
    key: [[bar("var(--soft)", "pale: no other image of its class"), bar("var(--pull)", "blue: partners of the first image (black)"), bar("var(--push)", "orange: a class that looks like it is in the batch")], "One batch is drawn; the numbers are means over all."],
  };
};

export const mount = on(drawing);
export default widget(mount);
