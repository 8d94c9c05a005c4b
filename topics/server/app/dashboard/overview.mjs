// All topics, a page of them at a time, with how fast each is written and what of it is left.
import { beginning, bytes, count, duration, el, emptyRow, facts, put, rate, renew, row, table } from "./dom.mjs"
import { call, poll } from "./api.mjs"
import { chart, History, sparkline } from "./chart.mjs"
import { Figures } from "./figures.mjs"
import { seqLine } from "./line.mjs"

const PAGE_SIZE = 50, LIST_MS = 2000, FIGURES_MS = 5000, RATES_MAX = 60, SEEN_MAX = 500
const COLUMNS = [["Topic", "name"], ["Records", "n"], ["Size", "n wide"], ["Written/s", "n"], ["", "wide"], ["Seqs: lost, gone, live", "line"], ["Head", "n wide"], ["Lag", "n wide"], ["Class", "wide"]]
const POWERS = Array.from({ length: 50 }, (_, power) => 2 ** power)
const written = new History(1)
const seen = new Map() // topic -> how fast it was written, lately; over visits of this view

export function overview() {
  let prefix = "", cursors = [undefined], next, lags = new Map(), before = null
  const search = beginning("Topics", (typed) => { prefix = typed; cursors = [undefined]; turn() })
  const cards = el("div"), lost = el("p", { class: "quiet" }), body = el("tbody"), pages = el("p", { class: "buttons" })
  const element = el("div", {})
  let look = async () => {}

  function start(signal) {
    const plot = chart("Written to the log, a second", written, [["bytes", "--live"]], { format: bytes, least: 16, incrs: POWERS }, signal)
    put(element,
      el("h1", { tabindex: "-1" }, "Topics"), cards, plot.figure, lost,
      el("p", { class: "bar" }, search, el("a", { class: "button", href: "#/new" }, "New topic"), pages),
      table("Topics", COLUMNS, body))
    plot.begin()

    look = async () => {
      const asked = `${prefix} ${cursors.at(-1)}`
      const page = await call("topics", { query: { prefix, cursor: cursors.at(-1), page_size: PAGE_SIZE, touch: false }, signal })
      if (asked !== `${prefix} ${cursors.at(-1)}`) return // another page was asked for meanwhile
      next = page.next_cursor
      draw(page.topics)
    }
    poll(signal, LIST_MS, () => look())
    poll(signal, FIGURES_MS, async () => {
      const figures = await Figures.look(signal)
      const size = figures.rate("topics_wal_written_bytes_total", before)
      if (before !== null) written.push(size)
      lags = new Map()
      for (const { labels, value } of figures.all("topics_consumer_lag")) lags.set(labels.topic, Math.max(value, lags.get(labels.topic) ?? 0))
      put(cards, summary(figures, before, size))
      const tombstones = figures.all("topics_tombstones_total").filter(({ value }) => value > 0)
      put(lost, tombstones.length === 0 ? "No reader has been told of a loss since the start." :
        `Tombstones told to readers since the start: ${tombstones.map(({ labels, value }) => `${labels.reason} ${count(value)}`).join(", ")}.`)
      plot.draw()
      before = figures
    })
  }

  function turn() {
    look().catch(() => {})
  }

  function draw(topics) {
    if (topics.length > 0) renew(body, topics.map((topic) => [topic.topic, topicRow(topic)]))
    else put(body, emptyRow(COLUMNS, prefix ? "No topic begins so." : ["There are no topics yet. ", el("a", { href: "#/new" }, "Make the first")]))
    const back = cursors.length > 1 && el("button", { type: "button", onclick: () => { cursors.pop(); turn() } }, "← Before")
    const on = next !== undefined && el("button", { type: "button", onclick: () => { cursors.push(next); turn() } }, "More →")
    const had = document.activeElement?.textContent
    put(pages, back, on)
    for (const one of pages.children) if (one.textContent === had) one.focus()
  }

  function topicRow(topic) {
    const rates = took(topic)
    return row(COLUMNS,
      el("a", { class: "data", href: link(topic) }, topic.topic), count(topic.count), bytes(topic.bytes), rate(rates.at(-1)),
      sparkline(rates), seqLine(topic), count(topic.head_seq),
      lags.has(topic.topic) ? count(lags.get(topic.topic)) : "", topic.type === "queue" ? `${topic.durability} queue` : topic.durability)
  }

  return { title: "Topics", element, start }
}

function link({ topic, type }) {
  return `#/topics/${encodeURIComponent(topic)}${type === "queue" ? "/jobs" : ""}`
}

// How fast the topic is written, as far as it was looked at; seqs are given to nothing else.
function took({ topic, head_seq: head }) {
  const now = performance.now()
  const before = seen.get(topic)
  seen.delete(topic)
  const one = before !== undefined && head >= before.head ? before : { head, at: now, rates: [] }
  if (now - one.at >= LIST_MS / 2) {
    one.rates.push(((head - one.head) * 1000) / (now - one.at))
    if (one.rates.length > RATES_MAX) one.rates.shift()
    one.head = head
    one.at = now
  }
  seen.set(topic, one)
  if (seen.size > SEEN_MAX) seen.delete(seen.keys().next().value)
  return one.rates
}

function summary(figures, before, size) {
  const sync = (q) => figures.quantile("topics_fsync_duration_seconds", q, before) ?? figures.quantile("topics_fsync_duration_seconds", q)
  const p99 = sync(0.99), pressure = figures.sum("topics_pressure") ?? 0
  const logSize = figures.sum("topics_wal_size_bytes")
  const readOnly = figures.sum("topics_wal_shard_read_only"), low = figures.sum("topics_wal_shard_disk_low"), damages = figures.sum("topics_damages")
  return facts(
    ["Topics", count(figures.sum("topics_topics") ?? 0)],
    ["Records", count(figures.sum("topics_records") ?? 0)],
    ["Stored", bytes(figures.sum("topics_record_bytes") ?? 0)],
    ["Written", size === null ? "…" : `${bytes(size)}/s`],
    logSize !== null && ["Size of the log", bytes(logSize)],
    ["fsync p50 / p99", p99 === null ? "none yet" : `${duration(sync(0.5) * 1000)} / ${duration(p99 * 1000)}`],
    ["Connections", count(figures.sum("topics_connections") ?? 0)],
    ["Pressure", el("meter", { min: 0, max: 1, low: 0.2, high: 0.6, optimum: 0, value: pressure, "aria-label": "Pressure" }), ` ${pressure.toFixed(2)}`],
    readOnly > 0 && ["Read-only", el("strong", {}, `${readOnly} shards`)],
    low > 0 && ["Disk", el("strong", {}, "low: appends are refused")],
    damages > 0 && ["Damages", el("a", { href: "#/server" }, count(damages))])
}
