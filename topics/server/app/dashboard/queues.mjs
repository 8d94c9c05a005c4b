// All queues: how many jobs wait, are held, are delayed or were given up, and how old the oldest is.
import { ago, beginning, count, el, emptyRow, put, rate, renew, row, table } from "./dom.mjs"
import { poll } from "./api.mjs"
import { Figures } from "./figures.mjs"

const FIGURES_MS = 3000
const COLUMNS = [["Queue", "name"], ["Ready", "n"], ["In flight", "n"], ["Delayed", "n"], ["Given up", "n"], ["Done/s", "n wide"], ["Failed/s", "n wide"], ["Ran out/s", "n wide"], ["Oldest job"], ["", "wide"]]

export function queues() {
  const body = el("tbody"), more = el("p", { class: "quiet" })
  let prefix = "", before = null, figures = null
  const search = beginning("Queues", (typed) => { prefix = typed; if (figures !== null) draw() })
  const element = el("div", {}, el("h1", { tabindex: "-1" }, "Queues"), el("p", { class: "bar" }, search), more, table("Queues", COLUMNS, body))

  const start = (signal) => poll(signal, FIGURES_MS, async () => {
    const fresh = await Figures.look(signal)
    before = figures
    figures = fresh
    draw()
  })

  function draw() {
    const of = (name) => figures.by(`topics_queue_${name}`, "topic")
    const [ready, held, delayed, dead, paused, oldest] = ["ready", "in_flight", "delayed", "dead_lettered", "paused", "oldest_job_timestamp_seconds"].map(of)
    const speeds = ["acked_jobs", "nacked_jobs", "expired_leases"].map((name) => speed(figures, before, `topics_queue_${name}_total`))
    put(more, ready.size === 0 ? "There are no queues among the topics that the metrics have." : ready.size < 1000 ? "" : "Those of the topics created first, as the metrics have them.")
    const shown = [...ready.keys()].filter((topic) => topic.startsWith(prefix)).sort()
    if (shown.length === 0 && prefix) put(body, emptyRow(COLUMNS, "No queue begins so."))
    else renew(body, shown.map((topic) => [topic, row(COLUMNS,
      el("a", { class: "data", href: `#/topics/${encodeURIComponent(topic)}/jobs` }, topic),
      count(ready.get(topic)), count(held.get(topic)), count(delayed.get(topic)), count(dead.get(topic)),
      ...speeds.map((by) => rate(by.get(topic))), oldest.has(topic) ? ago(oldest.get(topic) * 1000) : "", paused.get(topic) ? "paused" : "")]))
  }
  return { title: "Queues", element, start }
}

function speed(figures, before, name) {
  if (before === null) return new Map()
  const earlier = before.by(name, "topic")
  return new Map([...figures.by(name, "topic")].map(([topic, value]) => {
    const grown = value - (earlier.get(topic) ?? value)
    return [topic, grown < 0 ? null : (grown * 1000) / (figures.at - before.at)]
  }))
}
