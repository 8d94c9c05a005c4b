// Where a consumer's position is to be moved to. What that does is told while the number is typed, and as the position and the head go on.
import { button, count, el, field, put, unable } from "./dom.mjs"
import { text } from "./forms.mjs"

// A dialog that is closed with "yes"; then `seq()` is where to. `now()`: the topic's state and the consumer, undefined if it has
// gone; `tell`: to be called when they have changed.
export function moving(name, now) {
  const input = text({ inputmode: "numeric", maxlength: "20" }), stands = el("p"), does = el("span", { class: "across", role: "status" })
  const act = button("Move", () => dialog.close("yes"))
  const head = button("To the head", () => { input.value = String(now()[0].head_seq); input.focus(); tell() })
  const dialog = el("dialog", { "aria-labelledby": "stands" }, stands, el("form", { onsubmit: (event) => { event.preventDefault(); act.click() } },
    field("Move it to seq", input),
    el("p", { class: "buttons" }, does, button("Cancel", () => dialog.close("")), head, act)),
  el("p", { class: "quiet" }, "Reading begins there. A reader that runs may go on where it is, and its next commit moves the position on again: stop it first."))
  stands.id = "stands"

  function tell() {
    const [state, consumer] = now()
    const { what, why } = consumer === undefined ? { why: "There is no such consumer any more." } : judged(input.value.trim(), consumer.from_seq, state)
    put(stands, consumer !== undefined && `${name} has read up to ${count(consumer.from_seq)}; the head is ${count(state.head_seq)}.`)
    unable(act, why)
    if (does.textContent !== (what ?? why)) put(does, what ?? why)
  }

  input.addEventListener("input", tell)
  tell()
  return { dialog, tell, seq: () => Number(input.value) }
}

// What a move from `at` does, or why there is none. Records that are gone are not counted; of those between, some may be.
function judged(typed, at, { head_seq: head, earliest_seq: earliest, evict_floor: floor }) {
  const to = Number(typed)
  if (!/^\d+$/.test(typed)) return { why: `Type the seq up to which it is to have read: a whole number, from 0 to ${count(head)}.` }
  if (to > head) return { why: `The head is ${count(head)}: nobody has read beyond it.` }
  if (to === at) return { why: "It stands there." }
  const first = Math.max(Math.min(to, at) + 1, earliest), last = Math.max(to, at), many = last - first + 1
  const which = many < 1 ? "No record is there to be" : many === 1 ? `Record ${count(first)} is` : `Records ${count(first)} to ${count(last)}, ${count(many)} at most, are`
  const lost = to < at && to + 1 < floor && ` The reader is told that what is below ${count(floor)} is lost.`
  return { what: `${which} ${to < at ? "read again" : "skipped"}.${lost || ""}` }
}
