// What a reader asks for, and not before: a film where it is welcome, a page that moves in place of its still.
const film = document.querySelector("img[data-film]");
const calm = matchMedia("(prefers-reduced-motion: reduce)").matches || navigator.connection?.saveData;
if (film && !calm) {
  addEventListener("pointermove", () => { film.src = film.dataset.film; }, { once: true });
  addEventListener("scroll", () => { film.src = film.dataset.film; }, { once: true });
}
for (const still of document.querySelectorAll(".moving[data-page]")) {
  still.querySelector("button").addEventListener("click", () => {
    const frame = Object.assign(document.createElement("iframe"), { src: still.dataset.page, title: "The forces of this loss, on points that can be moved" });
    still.replaceChildren(frame);
    frame.focus();
  });
}
