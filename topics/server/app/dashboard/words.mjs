// The words of the view that is there, with what each means: by the button "?" and by that key, for a mouse alone would find
// what stands behind a word.
import { button, el, opened } from "./dom.mjs"

export function tellWords(view) {
  const words = new Map([...view.querySelectorAll(".word")].filter((word) => word.checkVisibility()).map((word) => [word.textContent, word.title]))
  opened(el("dialog", { class: "words", "aria-labelledby": "words-of" },
    el("div", { class: "bar" }, el("h2", { id: "words-of" }, "What the words here mean"), button("Close", (event) => event.target.closest("dialog").close(""))),
    words.size > 0 ? el("dl", {}, [...words].map(([word, meaning]) => el("div", {}, el("dt", {}, word), el("dd", {}, meaning)))) : el("p", {}, "This view has none that need it.")))
}
