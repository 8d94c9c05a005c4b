// Records deleted for good, by seq, by tag, or both; or the topic itself. First it is looked what would go; then that is asked for once more.
import { button, count, el, field, put, sure, table } from "./dom.mjs"
import { attempt, call } from "./api.mjs"
import { COLUMNS, matchOf, recordRow } from "./records.mjs"

const LOOKED_MAX = 50_000, SHOWN_MAX = 20, PAGE = 1000

export function deleting(topic) {
  const before = el("input", { type: "number", min: "1", step: "1", inputmode: "numeric" })
  const tag = el("input", { type: "text", placeholder: "eu, or eu*", maxlength: "256", autocomplete: "off", spellcheck: "false" })
  const said = el("p", { role: "status" }), shown = el("div"), buttons = el("p", { class: "buttons" })
  const gone = el("span", { role: "status" })
  let signal, asks = 0, live = null

  function selector() {
    const asked = { match: matchOf(tag.value) }
    if (before.value !== "") asked.before_seq = Number(before.value)
    return asked
  }

  async function preview(event) {
    event.preventDefault()
    forget()
    const asked = selector(), mine = asks
    if (asked.before_seq === undefined && asked.match === undefined) {
      put(said, "Say which: below a seq, with a tag, or both.")
      return
    }
    put(said, "Looking…")
    await attempt(element, async () => {
      const { found, first, isAll } = await look(asked, () => mine === asks)
      if (mine !== asks) return // the fields say something else by now
      put(shown, first.length > 0 && table("What would go", COLUMNS, first.map((record) => recordRow(topic, record))))
      const many = `${isAll ? "" : "at least "}${count(found)} ${found === 1 ? "record" : "records"}`
      const further = isAll ? "" : `, of the first ${count(LOOKED_MAX)} that were looked at`
      put(said, isAll && found === 0 ? "Nothing would go." : `${many} would go${further}${found > SHOWN_MAX ? `; the first ${SHOWN_MAX} of them` : ""}:`)
      if (found > 0 || !isAll) put(buttons, button(`Delete ${many}`, () => remove(asked, many), { class: "danger" }))
    })
  }

  async function look({ before_seq: end = Infinity, match }, isWanted) {
    let from_seq = 0, found = 0, looked = 0
    const first = []
    while (isWanted()) {
      const page = await call("read", { params: { topic }, signal, body: {
        from_seq, match, limit: first.length < SHOWN_MAX ? SHOWN_MAX : PAGE, include_tags: true, include_data: first.length < SHOWN_MAX, account: true,
      } })
      const mine = page.records.filter(({ $seq }) => $seq < end)
      first.push(...mine.slice(0, SHOWN_MAX - first.length))
      found += mine.length
      looked += page.account.delivered + page.account.filtered
      from_seq = page.next_from_seq
      if (page.caught_up || from_seq >= end - 1) return { found, first, isAll: true }
      if (looked >= LOOKED_MAX) return { found, first, isAll: false }
      if (isWanted()) put(said, `Looking… ${count(found)} so far, up to seq ${count(from_seq)}.`)
    }
    return {}
  }

  async function remove(asked, many) {
    if (!(await sure(`Delete ${many} of ${topic} for good? What was written with such a tag since the preview goes as well.`, "Delete"))) return
    await attempt(element, async () => {
      const { deleted, count: left } = await call("remove", { params: { topic }, body: asked, signal })
      put(said, `${count(deleted)} deleted, ${count(left)} left.`)
      put(shown)
      put(buttons)
    })
  }

  async function drop() {
    const text = `Delete the topic ${topic} with ${live === null ? "everything" : `all ${count(live)} records that live`} in it, for good? Its schedules, its consumers, and the routers from it and to it go as well.`
    if (!(await sure(text, "Delete the topic", topic))) return
    await attempt(element, async () => {
      const { deleted, routers_removed_count: routers } = await call("drop", { params: { topic }, signal })
      put(gone, deleted ? "The topic was deleted" : "There was no such topic any more", routers > 0 && `, and ${count(routers)} ${routers === 1 ? "router" : "routers"} with it`, ".")
    })
  }

  // What was looked up is of other fields than those that are there now.
  function forget() {
    asks++
    put(buttons)
    put(shown)
    put(said)
  }

  before.addEventListener("input", forget)
  tag.addEventListener("input", forget)
  const element = el("section", { "aria-label": "Delete" },
    el("form", { class: "bar", onsubmit: preview }, field("Below seq", before), field("Tag", tag), el("button", { type: "submit" }, "Preview")),
    said, shown, buttons, el("h2", {}, "The topic itself"), el("p", { class: "bar" }, button("Delete the topic…", drop, { class: "danger" }), gone))
  return { element, start: (until) => { signal = until }, look: (state) => { live = state.count } }
}
