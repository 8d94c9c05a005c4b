// Why a record is gone, or a job late: what the log says of one seq, or of each that a reader has not got.
import { button, count, data, el, emptyRow, facts, field, moment, put, row, table } from "./dom.mjs"
import { attempt, call } from "./api.mjs"
import { matchOf } from "./records.mjs"

const EVENTS = [["When"], ["What"], ["", "fill"], ["In the log", "wide"]]
const PARTS = [["Seqs", "n"], ["A reader is told"], ["Because", "fill"], ["When", "wide"]]
const TEXT_MAX = 2000 // a reason has 1 KiB at most
const SAID = {
  copied: "copied by a router", left_out: "left out by a router", again: "named again by a later write",
  synced: "by then the disk had it", stored: "a checkpoint has it in a segment",
  claimed: "leased", extended: "lease extended", lease_ended: "the lease ran out", released: "given back", released_all: "all leases ended",
  acked: "done, and deleted", purged: "deleted by a purge", dead_lettered: "given up", moved: "arrived there, and deleted here",
  evicted: "evicted", passed: "the floor went over it: readers are told that it is lost",
}
const MOMENTS = new Set(["deadline", "ready_at", "not_before", "expires_at", "until", "repeats_until"])

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
    const answer = await call("why", { params: { topic }, query, signal })
    if (mine === last) put(found, draw(answer))
  })

  function askOne(event) {
    event?.preventDefault()
    history.replaceState(null, "", `#/topics/${encodeURIComponent(topic)}/why/${seq.value}`)
    ask({ seq: seq.value }, story)
  }

  function askRange(cursor) {
    const match = matchOf(tag.value)
    ask({ from_seq: cursor, node: node.value, match: match && JSON.stringify(match) }, (answer) => [
      ranges(answer),
      answer.next_from_seq !== undefined && el("p", { class: "buttons" }, button("On →", () => askRange(answer.next_from_seq))),
    ])
  }

  const element = el("section", { "aria-label": "Why" },
    el("form", { class: "bar", onsubmit: askOne }, field("Seq", seq), el("button", { type: "submit" }, "What became of it?")),
    el("form", { class: "bar", onsubmit: (event) => { event.preventDefault(); askRange(from.value || 0) } },
      field("A reader at", from), field("Node", node), field("Tag", tag), el("button", { type: "submit" }, "What has he not got?")),
    found)
  return { element, start: (until) => { signal = until; if (seq.value !== "") askOne() } }
}

function story({ type, seq, now, reader, events = [], log, head_seq: head, before, cold }) {
  const { state, waits = [], ...more } = now
  return [
    facts(
      [type === "queue" ? "Job" : "Record", count(seq)], ["Now", state.replaceAll("_", " ")], ...Object.keys(more).map((name) => [spelled(name), data(valueOf(name, more[name]), TEXT_MAX)]),
      reader !== undefined && ["A reader is told", reader.as === "lost" ? `${reader.gap_from} to ${reader.gap_to} lost: ${reader.reason}` : reader.as],
      ["Head", count(head)]),
    ...waits.map(({ on, ...rest }) => el("p", {}, "It waits: ", data(`${spelled(on)} ${told(rest)}`.trim(), TEXT_MAX))),
    state === "unborn" && el("p", {}, "It was never put: there is no such seq.", before === undefined ? "" : ` The topic was deleted and made again; what epoch ${before.epoch} had went with it.`),
    cold !== undefined && el("p", {}, "The file in the cold tier that has it could not be read: ", data(cold)),
    table("What happened to it, in the order of the log", EVENTS, el("tbody", {}, events.length === 0 ? emptyRow(EVENTS, "The log says nothing of it.") : events.map(eventRow))),
    standing(log),
  ]
}

function eventRow({ ts, event, file, offset, ...rest }) {
  return row(EVENTS, moment(ts), SAID[event] ?? event, data(told(rest), TEXT_MAX), file === undefined ? "" : data(offset === undefined ? file : `${file} at ${offset}`))
}

function ranges({ parts, from_seq: from, to_seq: to, head_seq: head, reason, gap_to: gap, log }) {
  return [
    el("p", {}, parts.length === 0 ? `There is nothing above ${count(from)}: the head is ${count(head)}.` : `Above ${count(from)} up to ${count(to)}.`,
      gap === undefined ? "" : ` A read from there begins with a tombstone up to ${count(gap)}: ${reason}.`),
    table("Seqs by what a reader is told of them", PARTS, el("tbody", {}, parts.map((part) => row(PARTS,
      part.first === part.last ? count(part.first) : `${count(part.first)} to ${count(part.last)}`, spelled(part.as),
      data([part.state === part.as || part.as === "delivered" ? "" : spelled(part.state), part.reason].filter(Boolean).join(": "), TEXT_MAX),
      part.since === undefined ? "" : part.since === part.until ? moment(part.since) : `${moment(part.since)} to ${moment(part.until)}`)))),
    standing(log),
  ]
}

// What the answer stands on, where that is not all of the topic's log.
function standing({ folded_from: folded, since_ts: since, bytes_left: left, is_whole: isWhole }) {
  if (isWhole) return null
  const begun = { creation: "Since the topic was made.", snapshot: `Since the snapshot of ${moment(since)}: of what had ended before, the log has been removed.`, nothing: "By single frames: how it stands is the server's word." }[folded]
  return el("p", { class: "quiet" }, begun, left > 0 ? ` ${count(left)} bytes of older log were not looked at; topics why on the directory reads them.` : "")
}

function told(fields) {
  return Object.entries(fields).map(([name, value]) => `${spelled(name)} ${valueOf(name, value)}`).join(", ")
}

function valueOf(name, value) {
  return MOMENTS.has(name) ? moment(value) : String(value)
}

function spelled(name) {
  return name.replaceAll("_", " ")
}
