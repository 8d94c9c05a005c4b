// Records as rows that open to all that a record has, losses as rows between them, and the reader of one topic.
import { button, count, data, el, field, moment, put, row, short, shown, table, unable } from "./dom.mjs"
import { attempt, call } from "./api.mjs"
import { whole } from "./whole.mjs"

const TEXT_MAX = 160
export const COLUMNS = [["Seq", "n"], ["Time"], ["Tag", "wide"], ["Node", "wide"], ["Data", "fill most"]]

// `columns`, `cells`: columns of their own before the data, and what stands there. It opens by its seq, or by its data, which a
// mouse and a finger find sooner.
export function recordRow(topic, record, columns = COLUMNS, cells = null) {
  const text = JSON.stringify(record.data) ?? ""
  const opener = el("button", { type: "button", class: "plain", "aria-expanded": "false", onclick: toggle }, String(record.$seq))
  const own = cells ?? [moment(record.$ts), data(record.$tag), data(record.$node)]
  const closed = row(columns, opener, ...own, el("code", { class: "data", onclick: toggle }, short(shown(short(text, TEXT_MAX)), TEXT_MAX)))
  let open = null

  function toggle() {
    if (getSelection().type === "Range") return // it is being copied
    opener.setAttribute("aria-expanded", String(open === null))
    if (open === null) {
      open = el("tr", { class: "open" }, el("td", { colspan: columns.length }, whole(topic, record)))
      closed.after(open)
    } else {
      open.remove()
      open = null
    }
  }
  return closed
}

export function lossRow({ gap_from, gap_to, reason, cause, missed_estimate: missed }, columns = COLUMNS) {
  const range = gap_from === gap_to ? `${count(gap_from)} is` : `${count(gap_from)} to ${count(gap_to)} are`
  const many = missed === undefined || gap_to - gap_from < missed ? "" : `, about ${count(missed)} records`
  const text = reason === "recreated" ? "The topic was deleted and made again: what follows is of the new one." :
    `${range} lost: ${reason}${cause ? ` (${cause})` : ""}${many}`
  return el("tr", { class: "loss" }, el("td", { colspan: columns.length }, text))
}

// What became of every seq that a page has passed.
export function accountOf({ delivered, lost, deleted, expired, own_node: own, filtered }) {
  const words = [[delivered, "shown"], [lost, "lost"], [deleted, "deleted"], [expired, "expired"], [own, "of the reader's own node"], [filtered, "not matching"]]
  return words.filter(([n], i) => n > 0 || i === 0).map(([n, what]) => `${count(n)} ${what}`).join(", ")
}

// A tag that is looked for: all, or those that begin with what stands before a last `*`.
export function matchOf(text) {
  return text === "" ? undefined : ["tag", text.endsWith("*") ? "Glob" : "Eq", text]
}

export function reader(topic) {
  const seq = el("input", { type: "number", min: "0", step: "1", placeholder: "first", inputmode: "numeric" })
  const at = el("input", { type: "datetime-local", step: "0.001" })
  const tag = el("input", { type: "text", placeholder: "any, or eu*", maxlength: "256", autocomplete: "off", spellcheck: "false" })
  const limit = el("input", { type: "number", min: "1", max: "1000", value: "50" })
  const body = el("tbody"), account = el("p", { class: "quiet", role: "status" }), next = el("p", { class: "buttons", hidden: true })
  let signal, asked = 0, page = null

  // `from`: as the API has it, exclusive; a seq that somebody types is the first that he wants to see.
  const read = (from) => attempt(element, async () => {
    const mine = ++asked
    const size = Number(limit.value) || 50
    const answer = await call("read", { params: { topic }, signal, body: {
      ...from, limit: size, match: matchOf(tag.value), include_tags: true, account: true,
    } })
    if (mine !== asked) return // something else was asked for meanwhile
    page = { ...answer, size }
    const { tombstone, records, from_seq: above, next_from_seq: to, head_seq: head, caught_up: isAll } = page
    put(body, tombstone && lossRow(tombstone), records.map((record) => recordRow(topic, record)))
    put(account, `Above ${count(above)} up to ${count(to)}: ${accountOf(page.account)}. ${isAll ? "That is all so far." : `${count(page.lag)} seqs further on.`}`)
    for (const one of [first, back]) unable(one, above === 0 && "These are the first.")
    for (const one of [on, last]) unable(one, isAll && (one === on || above === Math.max(0, head - size)) && "That is all so far.")
    put(status)
    next.hidden = false
  })

  const first = button("⇤ First", () => read({ from_seq: 0 })), status = el("span", { class: "quiet", role: "status" })
  const back = button("← Before", () => read({ from_seq: Math.max(0, page.from_seq - page.size) }))
  const on = button("On →", () => read({ from_seq: page.next_from_seq }))
  const last = button("Last ⇥", () => read({ from_seq: Math.max(0, page.head_seq - page.size) }))
  put(next, first, back, on, last, status)

  function jump(event) {
    event?.preventDefault()
    if (at.value !== "") read({ from_ts: new Date(at.value).getTime() })
    else read({ from_seq: Math.max(0, (Number(seq.value) || 0) - 1) })
  }

  const element = el("section", { "aria-label": "Records" },
    el("form", { class: "bar", onsubmit: jump },
      field("From seq", seq), field("or time", at), field("Tag", tag), field("Most", limit), el("button", { type: "submit" }, "Read")),
    account, table("Records", COLUMNS, body), next)
  seq.addEventListener("input", () => { at.value = "" })
  at.addEventListener("input", () => { seq.value = "" })
  return { element, start: (until) => { signal = until; read({ from_seq: 0 }) } }
}
