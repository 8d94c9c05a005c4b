// All queues: how many jobs wait, are held, are delayed or were given up, and how old the oldest is.
import { ago, count, el, rate, row } from "./dom.mjs"
import { Figures } from "./figures.mjs"
import { foundByName } from "./found.mjs"

const FIGURES_MS = 3000, LISTED_MAX = 1000 // so many topics the metrics have
const COLUMNS = [["Queue", "name"], ["Ready", "n"], ["In flight", "n"], ["Delayed", "n"], ["Given up", "n"], ["Done/s", "n wide"], ["Failed/s", "n wide"], ["Ran out/s", "n wide"], ["Oldest job"], ["", "wide"]]

export function queues() {
  let before = null
  const look = async (signal) => {
    const figures = await Figures.look(signal), entries = rowsOf(figures, before)
    before = figures
    return { entries, about: entries.length < LISTED_MAX ? "" : "Those of the topics created first, as the metrics have them." }
  }
  return foundByName({ title: "Queues", one: "queue", caption: "Queues", columns: COLUMNS, every_ms: FIGURES_MS, none: "There are no queues among the topics that the metrics have.", look })
}

function rowsOf(figures, before) {
  const of = (name) => figures.by(`topics_queue_${name}`, "topic")
  const [ready, held, delayed, dead, paused, oldest] = ["ready", "in_flight", "delayed", "dead_lettered", "paused", "oldest_job_timestamp_seconds"].map(of)
  const speeds = ["acked_jobs", "nacked_jobs", "expired_leases"].map((name) => speed(figures, before, `topics_queue_${name}_total`))
  return [...ready.keys()].sort().map((topic) => [topic, topic, () => row(COLUMNS,
    el("a", { class: "data", href: `#/topics/${encodeURIComponent(topic)}/jobs` }, topic),
    count(ready.get(topic)), count(held.get(topic)), count(delayed.get(topic)), count(dead.get(topic)),
    ...speeds.map((by) => rate(by.get(topic))), oldest.has(topic) ? ago(oldest.get(topic) * 1000) : "", paused.get(topic) ? "paused" : "")])
}

function speed(figures, before, name) {
  if (before === null) return new Map()
  const earlier = before.by(name, "topic")
  return new Map([...figures.by(name, "topic")].map(([topic, value]) => {
    const grown = value - (earlier.get(topic) ?? value)
    return [topic, grown < 0 ? null : (grown * 1000) / (figures.at - before.at)]
  }))
}
