// The springs of a pair loss: six images on a circle, and between any two a spring, as wide as it turns its ends.
import { bar, circle, follow, node, on, short, spot, turned, turnedText, widget } from "./stage.js";

const WIDEST = 10; // of a spring

function springsOf({ strength }) {
  const pairs = strength.flatMap((row, i) => row.slice(i + 1).map((s, k) => ({ i, j: i + 1 + k, s: Math.abs(s), pulls: s < 0 })));
  return pairs.sort((a, b) => b.s - a.s);
}

const drawing = (settings) => {
  const lines = node("g"), arrows = node("g"), names = settings.points.map(({ name }) => name);
  const below = node("g", { "aria-hidden": "true" }, node("circle", { class: "ring", r: 100 }), lines, arrows);
  let peak = 0;

  return {
    below, move: circle(),
    begin() { peak = 0; },
    draw(answer, { points }) {
      const springs = springsOf(answer), strongest = Math.max(springs[0].s, ...answer.turns.map(Math.abs));
      peak = Math.max(peak, strongest); // what has become weak looks weak
      const unit = Math.max(strongest, peak / 8, 1e-9), at = points.map(([degrees]) => spot(degrees));
      lines.replaceChildren(...springs.filter(({ s }) => s > unit / 250).map(({ i, j, s, pulls }) => node("line", {
        class: `spring ${pulls ? "pull" : "push"}`, x1: at[i][0], y1: at[i][1], x2: at[j][0], y2: at[j][1],
        "stroke-width": Math.max(0.9, (WIDEST * s) / unit).toFixed(2),
      })));
      arrows.replaceChildren(...turned(answer.turns, points, unit));
    },
    said(answer) {
      const [{ i, j, s, pulls }] = springsOf(answer);
      return s < 5e-4 ? "No spring turns a point: the loss is content."
        : `Widest: ${names[i]} and ${names[j]} ${pulls ? "pull together" : "push apart"}, ${short(s, 3)}.`;
    },
    about: turnedText,
    tables(answer, { points }) {
      const shown = springsOf(answer).filter(({ s }) => s >= 5e-4);
      return [
        ["Force on each point, + counterclockwise", ["point", "angle", "force"], names.map((name, i) => [name, `${points[i][0].toFixed(2)}°`, [`turns.${i}`]])],
        ["Springs, − pulls", ["pair", "w", "w sin θ"], shown.map(({ i, j }) => [`${names[i]} ${names[j]}`, [`weights.${i}.${j}`], [`strength.${i}.${j}`]])],
      ];
    },
    key: [[bar("var(--pull)", "pulls together"), bar("var(--push)", "pushes apart")],
      "Width: how strongly a spring turns its ends, |w| sin θ. Arrow: the sum of a point’s springs."],
    play: follow(),
  };
};

export const mount = on(drawing);
export default widget(mount);
