// Durable consumers: those of one topic with where they stand, and those of all with how far they are behind.
import { beginning, count, data, el, emptyRow, put, renew, row, table, time } from "./dom.mjs"
import { poll } from "./api.mjs"
import { Figures } from "./figures.mjs"

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
  const body = el("tbody"), more = el("p", { class: "quiet" })
  let prefix = "", found = null
  const search = beginning("Consumers", (typed) => { prefix = typed; if (found !== null) draw() })
  const element = el("div", {}, el("h1", { tabindex: "-1" }, "Consumers"), el("p", { class: "bar" }, search), more, table("Consumers by how far they are behind", ALL, body))
  const start = (signal) => poll(signal, FIGURES_MS, async () => {
    const figures = await Figures.look(signal)
    found = figures.all("topics_consumer_lag").toSorted((a, b) => b.value - a.value)
    put(more, found.length === 0 ? "No consumer keeps a position." : "Those of the topics created first, as the metrics have them; all of a topic are on its page.")
    draw()
  })

  function draw() {
    const shown = found.filter(({ labels }) => labels.consumer.startsWith(prefix))
    if (shown.length === 0 && prefix) put(body, emptyRow(ALL, "No consumer begins so."))
    else renew(body, shown.map(({ labels, value }) => [`${labels.topic} ${labels.consumer}`, row(ALL,
      el("a", { class: "data", href: `#/topics/${encodeURIComponent(labels.topic)}/consumers` }, labels.topic), data(labels.consumer), count(value))]))
  }
  return { title: "Consumers", element, start }
}
