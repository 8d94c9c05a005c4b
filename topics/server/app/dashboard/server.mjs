// The server itself: the disk, the log, checkpoints, what is damaged, and how busy it is.
import { bytes, count, duration, el, facts, put, row, table } from "./dom.mjs"
import { call, poll, Refused } from "./api.mjs"
import { chart, History } from "./chart.mjs"
import { Figures } from "./figures.mjs"

const FIGURES_MS = 3000
const SHARDS = [["Shard", "n"], ["Written since the start", "n"], ["Frames", "n wide"], ["Batches", "n wide"], ["Syncs", "n wide"], ["Disk free", "n"], ["State"]]
const DAMAGES = [["File"], ["Topic"], ["Seqs", "n"], ["Why", "fill"]]
const SYNC = "topics_fsync_duration_seconds", DELIVERY = "topics_delivery_latency_seconds"
const syncs = new History(2), work = new History(2)

export function server() {
  const figuresHere = el("div"), shards = el("tbody"), trouble = el("div"), pressure = el("div"), logHere = el("div")
  const element = el("div")
  let before = null, mayAsk = true

  function start(signal) {
    const seconds = (s) => (s === 0 ? "0" : duration(s * 1000))
    const plots = [
      chart("Sync of a batch to the disk", syncs, [["p50", "--live"], ["p99", "--mark"]], { format: seconds, least: 0.001 }, signal),
      chart("Requests a second; frames written a second", work, [["requests", "--live"], ["frames", "--mark"]], { format: count, least: 4 }, signal),
    ]
    put(element, el("h1", { tabindex: "-1" }, "Server"), trouble, figuresHere, el("div", { class: "plots" }, plots.map(({ figure }) => figure)),
      pressure, el("h2", {}, "The log"), logHere, table("Shards of the log", SHARDS, shards))
    for (const plot of plots) plot.begin()
    poll(signal, FIGURES_MS, async () => {
      const [health, figures] = await Promise.all([call("health", { signal }), Figures.look(signal)])
      put(figuresHere, figuresOf(health, figures, before))
      put(logHere, logOf(figures, before))
      put(shards, shardRows(figures))
      if (before !== null) {
        syncs.push(figures.quantile(SYNC, 0.5, before), figures.quantile(SYNC, 0.99, before))
        work.push(figures.rate("topics_requests_total", before), figures.rate("topics_wal_frames_total", before))
      }
      for (const plot of plots) plot.draw()
      before = figures
      put(trouble, troubleOf(await call("ready", { signal })))
    })
    poll(signal, FIGURES_MS, async () => {
      if (!mayAsk) return
      try {
        put(pressure, pressureOf(await call("pressure", { signal })))
      } catch (error) {
        if (!(error instanceof Refused) || error.status !== 403) throw error
        mayAsk = false // another key is another page
        put(pressure, el("p", { class: "quiet" }, `Pressure: ${error.message}`))
      }
    })
  }

  return { title: "Server", element, start }
}

// Groups of figures, each under a heading.
function figuresOf({ version, uptime_ms: uptime }, figures, before) {
  const sum = (name) => figures.sum(`topics_${name}`) ?? 0
  const size = figures.by("topics_segment_bytes", "tier"), segments = figures.by("topics_segments", "tier")
  const filesOf = (tier) => ((segments.get(tier) ?? 0) === 0 ? "none" : `${count(segments.get(tier))}, ${bytes(size.get(tier))}`)
  const rss = figures.sum("process_resident_memory_bytes")
  const cpu = figures.rate("process_cpu_seconds_total", before)
  return [
    facts(["Version", version], ["Up", duration(uptime)],
      rss !== null && ["Memory", bytes(rss)], cpu !== null && ["CPU", `${Math.round(cpu * 100)} %`],
      ["Errors of ours", count(sum("request_bugs_total") + sum("connection_bugs_total"))]),
    el("h2", {}, "What it holds"),
    facts(["Topics", count(sum("topics"))], ["Records", count(sum("records"))], ["Stored", bytes(sum("record_bytes"))],
      ["Segments", filesOf("hot")], ["Cold segments", filesOf("cold"), sum("cold_store_failing") > 0 && el("strong", {}, " their store fails")],
      ["Schedules", count(sum("schedules")), sum("schedules_blocked") > 0 && el("strong", {}, ` ${count(sum("schedules_blocked"))} find no room`)],
      ["Dead letters without room", count(sum("dead_letter_blocked"))]),
    el("h2", {}, "Clients"),
    facts(["Connections", count(sum("connections"))], ["Open streams", count(sum("streams"))], ["Watches", count(sum("watch_sessions"))],
      ["Reads that wait", count(sum("waiting_readers"))], ["Requests in memory", bytes(sum("request_held_bytes"))], ["Answers in memory", bytes(sum("unsent_bytes"))],
      ["Until news is sent, p50 / p99", pairOf(DELIVERY, figures, before)]),
  ]
}

function logOf(figures, before) {
  const size = figures.sum("topics_wal_size_bytes"), rounds = figures.sum("topics_checkpoints_total") ?? 0
  return facts(size !== null && ["Size of the log", bytes(size)], ["fsync p50 / p99", pairOf(SYNC, figures, before)],
    ["Checkpoints since the start", count(rounds), figures.sum("topics_checkpoints_failed") > 0 && el("strong", {}, " the last failed")])
}

// The median and the 99th percentile, of what came since the look before if anything did.
function pairOf(name, figures, before) {
  const quantile = (q) => figures.quantile(name, q, before) ?? figures.quantile(name, q)
  return quantile(0.99) === null ? "none yet" : `${duration(quantile(0.5) * 1000)} / ${duration(quantile(0.99) * 1000)}`
}

function shardRows(figures) {
  const of = (name) => figures.by(`topics_wal_${name}`, "shard")
  const [size, frames, batches, syncs, readOnly, low, free] = ["written_bytes_total", "frames_total", "batches_total", "syncs_total", "shard_read_only", "shard_disk_low", "shard_free_bytes"].map(of)
  return [...size.keys()].map((shard) => row(SHARDS, shard, bytes(size.get(shard)), count(frames.get(shard)), count(batches.get(shard)), count(syncs.get(shard)), free.has(shard) ? bytes(free.get(shard)) : "",
    readOnly.get(shard) ? el("strong", {}, "read-only: see the server's log") : low.get(shard) ? el("strong", {}, "disk low: appends are refused") : "written"))
}

function troubleOf({ damages = [], cut_tail: cuts = [] }) {
  if (damages.length === 0 && cuts.length === 0) return el("p", { class: "quiet" }, "Nothing is known to be damaged.")
  return [
    damages.length > 0 && [el("h2", {}, "Damages"), table("Damages", DAMAGES, el("tbody", {}, damages.map(({ file, topic, first_seq: first, last_seq: last, why }) =>
      row(DAMAGES, el("span", { class: "data" }, file), topic ?? "", topic === undefined ? "" : `${count(first)} to ${count(last)}`, why))))],
    ...cuts.map(({ file, bytes: size, topics }) => el("p", {}, `The last start cut ${bytes(size)} that no sync had covered from ${file}`,
      Object.keys(topics).length > 0 ? `: ${Object.entries(topics).map(([name, seq]) => `${name} up to ${seq}`).join(", ")}.` : ".")),
  ].flat()
}

const LEFT_OFF = {
  nothing: "nothing", coalesce: "news waits for more of it", widen: "and synced writes wait for each other",
  hold: "and topics below priority 0 are not told", refuse: "and writes are refused where too many wait",
}
const BANDS = { below_0: "below 0", 0: "0 to 249", 250: "250 to 499", 500: "500 to 749", 750: "750 and above" }

function pressureOf({ pressure, step, signals, bands, held_topics: held, coalesce_ms: coalesce, commit_ms: commit }) {
  const waiting = Object.keys(BANDS).filter((band) => bands[band] > 0).map((band) => `${count(bands[band])} of priority ${BANDS[band]}`)
  return [el("h2", {}, "Pressure"), facts(
    ["Pressure", el("meter", { min: 0, max: 1, low: 0.2, high: 0.6, optimum: 0, value: pressure, "aria-label": "Pressure" }), ` ${pressure.toFixed(2)}`],
    ["Left off", LEFT_OFF[step] ?? step], ["Topics still to be told", waiting.length === 0 ? "none" : waiting.join(", ")],
    ["They wait for", duration(signals.scheduling_latency_ms)], ["Busy", `${Math.round(signals.busy * 100)} %`], ["Topics not told", count(held)],
    ["News is gathered for", duration(coalesce)], ["Syncs are gathered for", duration(commit)])]
}
