// The jobs of one queue: how many wait, who holds what until when, what failed and why; and what can be done about it.
import { ago, button, count, data, el, emptyRow, moment, put, sure, table, time, unable } from "./dom.mjs"
import { attempt, call, poll } from "./api.mjs"
import { chart, History } from "./chart.mjs"
import { recordRow } from "./records.mjs"

const JOBS_MS = 2000, SHOWN_MAX = 50, LETTERS_MAX = 50
const HELD = [["Job", "n"], ["Held by", "name"], ["Until"], ["Times", "n wide"], ["Data", "fill"]]
const WAITING = [["Job", "n"], ["Put"], ["Priority", "n wide"], ["Times", "n wide"], ["Failed because", "wide"], ["Data", "fill"]]
const LATER = [["Job", "n"], ["Ready at"], ["Times", "n wide"], ["Failed because", "wide"], ["Data", "fill"]]
const LETTERS = [["Seq", "n"], ["Given up at"], ["From", "wide"], ["Times", "n wide"], ["Because"], ["Data", "fill"]]
const histories = new Map() // of the queues looked at, the latest last; `given_up`: what had been when it was first looked at
const HISTORIES_MAX = 20

export function jobs(topic) {
  const said = el("p", { role: "status" }), oldest = el("p", { class: "quiet" })
  const element = el("section", { "aria-label": "Jobs" })
  const lists = [
    part("In flight", HELD, "in_flight", (job) => recordRow(topic, job, HELD, [data(job.node), until(job.deadline), job.deliveries])),
    part("Ready, in the order in which they are handed out", WAITING, "ready", (job) => recordRow(topic, job, WAITING, [moment(job.$ts), job.priority ?? 0, job.deliveries, data(job.reason)])),
    part("Delayed", LATER, "delayed", (job) => recordRow(topic, job, LATER, [job.ready_at === undefined ? "behind others of its key" : time(job.ready_at), job.deliveries, data(job.reason)])),
  ]
  const letters = part("Dead letters, the latest", LETTERS, null, letterRow)
  const paused = button("Pause", () => act(isPaused ? "resume" : "pause", (answer) => (answer.paused ? "Paused: nothing is handed out." : "It goes on.")))
  const redriveAll = button("Put all back", async () => {
    if (await sure(`Put the dead letters in ${deadLetter} (1000 of them at most) back into ${topic} as fresh jobs?`, "Put back")) redrive()
  })
  const purge = button("Purge", async () => {
    if (await sure(`Delete every ready and delayed job of ${topic} for good? Those in flight stay.`, "Delete")) act("purge", ({ purged }) => `${count(purged)} jobs deleted.`)
  }, { class: "danger" })
  let isPaused = false, deadLetter = null, earliest = null, signal, plot
  const seen = historyOf(topic)

  const act = (name, said_of, body) => attempt(element, async () => {
    put(said, said_of(await call(name, { params: { topic }, body, signal })))
    await refresh(true)
  })

  const redrive = (seqs) => act("redrive", ({ count: many }) => `${count(many)} on their way back.`, { source: deadLetter, seqs })

  function letterRow(record) {
    const meta = record.meta ?? {}
    const at = typeof meta.$dead_letter_ts === "number" ? meta.$dead_letter_ts : record.$ts
    const cells = [time(at), data(meta.$dead_letter_from), data(meta.$dead_letter_deliveries), el("span", {}, data(meta.$dead_letter_reason), " ",
      button("Put back", () => redrive([record.$seq]), { "aria-label": `Put ${record.$seq} back` }))]
    return recordRow(deadLetter, record, LETTERS, cells)
  }

  async function refresh(isForced) {
    await Promise.all(lists.map((list) => list.load(isForced, (state) => call("peek", { params: { topic }, body: { state, limit: SHOWN_MAX }, signal }).then(({ jobs }) => jobs))))
    if (deadLetter === null) return
    await letters.load(isForced, async () => {
      const { head_seq: head, count: live } = await call("topic", { params: { topic: deadLetter }, query: { touch: false }, signal })
      unable(redriveAll, live === 0 && `There is no dead letter in ${deadLetter}.`)
      const { records } = await call("read", { params: { topic: deadLetter }, body: { from_seq: Math.max(0, head - LETTERS_MAX), limit: LETTERS_MAX }, signal })
      return records.reverse()
    })
  }

  function look({ queue, config, count: live, earliest_seq: first }) {
    if (queue === undefined) return
    earliest = live > 0 ? first : null
    isPaused = queue.paused
    paused.textContent = isPaused ? "Resume" : "Pause"
    seen.given_up ??= queue.dead_lettered
    seen.history.push(queue.ready, queue.in_flight, queue.delayed, Math.max(0, queue.dead_lettered - seen.given_up))
    plot?.draw()
    deadLetter = config.dead_letter
    unable(purge, queue.ready + queue.delayed === 0 && "No job is ready or delayed; those in flight cannot be purged.")
    redriveAll.hidden = deadLetter === null
    letters.title.textContent = deadLetter === null ? "Dead letters: this queue has no topic for them" : `Dead letters in ${deadLetter}, the latest (${count(queue.dead_lettered)} given up in all)`
    const words = [`${count(queue.ready)} ready, ${count(queue.in_flight)} in flight, ${count(queue.delayed)} delayed.`, isPaused ? "The queue is paused." : ""]
    if (live === 0) put(oldest, words.join(" "))
    else put(oldest, words.join(" "), oldestOf)
  }
  const oldestOf = el("span")

  function start(until) {
    signal = until
    plot = chart("Jobs", seen.history, [["ready", "--live"], ["in flight", "--mark"], ["delayed", "--gone"], ["given up since", "--lost"]], { format: count, least: 4 }, signal)
    put(element, el("p", { class: "bar" }, paused, redriveAll, purge, said), oldest, plot.figure, [...lists, letters].map(({ element }) => element))
    plot.begin()
    poll(signal, JOBS_MS, async () => {
      const [oldest] = earliest === null ? [] : (await call("peek", { params: { topic }, body: { seqs: [earliest] }, signal })).jobs
      put(oldestOf, oldest === undefined ? "" : ` The oldest was put ${ago(oldest.$ts)}.`)
      await refresh(false)
    })
  }

  return { element, start, look }
}

// A list that is drawn anew only if it has changed, and not by itself while a row of it is open or has the focus.
function part(name, columns, state, rowOf) {
  const body = el("tbody"), title = el("h2", {}, name)
  const element = el("div", {}, title, table(name, columns, body))
  let drawn = null
  async function load(isForced, look) {
    const found = await look(state)
    const now = JSON.stringify(found)
    if (now === drawn || (!isForced && (body.querySelector("tr.open") || body.contains(document.activeElement)))) return
    drawn = now
    put(body, found.map(rowOf))
    if (found.length === 0) put(body, emptyRow(columns, "None"))
  }
  return { element, title, load }
}

function until(deadline) {
  return el("time", { datetime: new Date(deadline).toISOString() }, moment(deadline))
}

function historyOf(topic) {
  const found = histories.get(topic) ?? { history: new History(4), given_up: null }
  histories.delete(topic)
  histories.set(topic, found)
  if (histories.size > HISTORIES_MAX) histories.delete(histories.keys().next().value)
  return found
}
