// Durable consumers: those of one topic with where they stand, and those of all with how far they are behind.
import { count, data, el, emptyRow, put, row, table, time } from "./dom.mjs"
import { Figures } from "./figures.mjs"
import { foundByName } from "./found.mjs"

const FIGURES_MS = 5000
const HERE = [["Consumer"], ["Read up to", "n"], ["Behind", "n"], ["Moved", "wide"]]
const ALL = [["Topic", "name"], ["Consumer"], ["Behind", "n"]]

export function positions() {
  const body = el("tbody")
  const look = (_, consumers) => {
    put(body, consumers.map(({ consumer, from_seq: seq, lag, updated_ts: at }) => row(HERE, data(consumer), count(seq), count(lag), time(at))))
    if (consumers.length === 0) put(body, emptyRow(HERE, "Nobody keeps a position here."))
  }
  return { element: el("section", { "aria-label": "Consumers" }, table("Consumers", HERE, body)), start: () => {}, look }
}

export function consumers() {
  const look = async (signal) => {
    const found = (await Figures.look(signal)).all("topics_consumer_lag").toSorted((a, b) => b.value - a.value)
    const entries = found.map(({ labels: { topic, consumer }, value }) => [consumer, `${topic} ${consumer}`, () => row(ALL,
      el("a", { class: "data", href: `#/topics/${encodeURIComponent(topic)}/consumers` }, topic), data(consumer), count(value))])
    return { entries, about: found.length === 0 ? "" : "Those of the topics created first, as the metrics have them; all of a topic are on its page." }
  }
  return foundByName({ title: "Consumers", one: "consumer", caption: "Consumers by how far they are behind", columns: ALL, every_ms: FIGURES_MS, none: "No consumer keeps a position.", look })
}
