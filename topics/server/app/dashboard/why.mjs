// Why a record is gone, or a job late: what the log says of one seq, or of each that a reader has not got. The sentences
// are the server's, the same that `topics why` prints.
import { button, count, data, el, emptyRow, field, moment, put, row, table } from "./dom.mjs"
import { attempt, call } from "./api.mjs"
import { matchOf } from "./records.mjs"

const EVENTS = [["When"], ["What", "fill"], ["In the log", "wide"]]
const PARTS = [["Seqs", "n"], ["A reader is told"], ["Because", "fill"], ["When", "wide"]]
const ROWS_MAX = 500
const SENTENCE_MAX = 4000 // of a failure, whose reason has 1 KiB, and a name or two
export function reasons(topic, _, asked) {
  const seq = el("input", { type: "number", min: "1", step: "1", inputmode: "numeric", value: asked, required: true })
  const from = el("input", { type: "number", min: "0", step: "1", inputmode: "numeric" })
  const node = el("input", { type: "text", maxlength: "128", autocomplete: "off", spellcheck: "false" })
  const tag = el("input", { type: "text", placeholder: "any, or eu*", maxlength: "256", autocomplete: "off", spellcheck: "false" })
  const found = el("div")
  let signal, last = 0

  const ask = (query, draw) => attempt(element, async () => {
    const mine = ++last
    put(found)
    const answer = await call("why", { params: { topic }, query: { ...query, words: true }, signal })
    if (mine === last) put(found, draw(answer))
  })

  function askOne(event) {
    event?.preventDefault()
    history.replaceState(null, "", `#/topics/${encodeURIComponent(topic)}/why/${seq.value}`)
    ask({ seq: seq.value }, story)
  }

  function askRange(cursor) {
    const match = matchOf(tag.value)
    ask({ from_seq: cursor, node: node.value, match: match && JSON.stringify(match) }, (answer) => pageOf(answer, 0))
  }

  // An answer has 10 000 parts at most, which is more than a page can draw at once.
  function pageOf(answer, at) {
    const after = at + ROWS_MAX
    const on = after < answer.parts.length ? () => put(found, pageOf(answer, after))
      : answer.next_from_seq !== undefined && (() => askRange(answer.next_from_seq))
    return [ranges({ ...answer, parts: answer.parts.slice(at, after) }), on && el("p", { class: "buttons" }, button("On →", on))]
  }

  const element = el("section", { "aria-label": "Why" },
    el("form", { class: "bar", onsubmit: askOne }, field("Seq", seq), el("button", { type: "submit" }, "What became of it?")),
    el("form", { class: "bar", onsubmit: (event) => { event.preventDefault(); askRange(from.value || 0) } },
      field("A reader at", from), field("Node", node), field("Tag", tag), el("button", { type: "submit" }, "What has he not got?")),
    found)
  return { element, start: (until) => { signal = until; if (seq.value !== "") askOne() } }
}

function story({ events = [], words }) {
  return [
    said(words),
    table("What happened to it, in the order of the log", EVENTS, el("tbody", {}, events.length === 0 ? emptyRow(EVENTS, "The log says nothing of it.") : events.map(eventRow))),
  ]
}

function eventRow({ ts, words, file, offset }) {
  return row(EVENTS, moment(ts), sentence(words), file === undefined ? "" : data(offset === undefined ? file : `${file} at ${offset}`))
}

function ranges({ parts, from_seq: from, to_seq: to, words = [] }) {
  return [
    parts.length > 0 && el("p", {}, `Above ${count(from)} up to ${count(to)}.`),
    said(words),
    table("Seqs by what a reader is told of them", PARTS, el("tbody", {}, parts.map((part) => row(PARTS,
      part.first === part.last ? count(part.first) : `${count(part.first)} to ${count(part.last)}`, part.as.replaceAll("_", " "), sentence(part.words ?? []),
      part.since === undefined ? "" : part.since === part.until ? moment(part.since) : `${moment(part.since)} to ${moment(part.until)}`)))),
  ]
}

function said(sentences) {
  return el("div", { class: "said" }, sentences.map((words) => el("p", {}, sentence(words))))
}

// A sentence comes in pieces: text, and moments in ms.
function sentence(words) {
  return data(words.map((piece) => typeof piece === "number" ? moment(piece) : piece).join(""), SENTENCE_MAX)
}
