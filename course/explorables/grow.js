// A map of drawings that moves as a network learns: at each stop the places, between two stops a straight way.
import { node, on, short, widget } from "./stage.js";

const SIDE = 15;

export function compute({ numbers: [step] }, settings) {
  const { steps, places, right } = settings.data;
  let stop = 0;
  while (stop + 1 < steps.length && steps[stop + 1] <= step) stop += 1;
  const after = Math.min(stop + 1, steps.length - 1), part = (step - steps[stop]) / Math.max(1, steps[after] - steps[stop]);
  const between = (k) => places[stop].map((place, i) => place[k] + part * (places[after][i][k] - place[k]));
  return { x: between(0), y: between(1), right: right[stop], stop: steps[stop] };
}

const drawing = (settings) => {
  const { urls, steps, nearest } = settings.data, kind = settings.data.class;
  const lines = node("g", { style: "stroke: var(--line); stroke-width: .6" }), below = node("g", { "aria-hidden": "true" }, lines);
  const drawings = urls.map((href) => node("image", { href, width: SIDE, height: SIDE }));
  below.append(...drawings);
  return {
    below, box: "-116 -116 232 232", move: {},
    draw({ x, y, stop }) {
      drawings.forEach((each, i) => { each.setAttribute("x", x[i] - SIDE / 2); each.setAttribute("y", -y[i] - SIDE / 2); });
      const near = nearest[steps.indexOf(stop)];
      lines.replaceChildren(...near.map((j, i) => node("line", { x1: x[i], y1: -y[i], x2: x[j], y2: -y[j],
        ...(kind[i] === kind[j] ? {} : { style: "stroke: var(--push); stroke-width: 1" }) })));
    },
    said: ({ right, stop }) => `At step ${stop} the nearest drawing is of the same character for ${short(right, 1)} % of the drawings.`,
    tables: () => [["The count", ["value"], [["of the same character (%)", ["right"]]]]],
    key: ["Color is the character, which the map is not told. A line leads to the nearest drawing in the 64 numbers; it is red where that is another character."],
  };
};

export const mount = on(drawing);
export default widget(mount);
