// The server itself: the disk, the log, checkpoints, what is damaged, and how busy it is.
import { bytes, count, duration, el, facts, put, row, table } from "./dom.mjs"
import { call, poll, Refused } from "./api.mjs"
import { chart, History } from "./chart.mjs"
import { Figures } from "./figures.mjs"

const FIGURES_MS = 3000
const SHARDS = [["Shard", "n"], ["Written", "n"], ["Frames", "n"], ["Batches", "n wide"], ["Syncs", "n wide"], ["Disk free", "n"], ["State"]]
const DAMAGES = [["File"], ["Topic"], ["Seqs", "n"], ["Why", "fill"]]
const SYNC = "topics_fsync_duration_seconds", DELIVERY = "topics_delivery_latency_seconds"
const syncs = new History(2), work = new History(2)

export function node() {
  const figuresHere = el("div"), shards = el("tbody"), trouble = el("div"), pressure = el("div")
  const element = el("div")
  let before = null, mayAsk = true

  function start(signal) {
    const seconds = (s) => (s === 0 ? "0" : duration(s * 1000))
    const plots = [
      chart("fsync of a batch", syncs, [["p50", "--live"], ["p99", "--mark"]], { format: seconds, least: 0.001 }, signal),
      chart("Requests a second; frames written a second", work, [["requests", "--live"], ["frames", "--mark"]], { format: count, least: 4 }, signal),
    ]
    put(element, el("h1", { tabindex: "-1" }, "Server"), figuresHere, trouble, el("div", { class: "plots" }, plots.map(({ figure }) => figure)),
      pressure, el("h2", {}, "The log"), table("Shards of the log", SHARDS, shards))
    for (const plot of plots) plot.begin()
    poll(signal, FIGURES_MS, async () => {
      const [health, figures] = await Promise.all([call("health", { signal }), Figures.look(signal)])
      put(figuresHere, figuresOf(health, figures, before))
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

function figuresOf({ version, uptime_ms: uptime }, figures, before) {
  const sum = (name) => figures.sum(`topics_${name}`) ?? 0
  const quantile = (name, q) => figures.quantile(name, q, before) ?? figures.quantile(name, q)
  const pair = (name) => (quantile(name, 0.99) === null ? "none yet" : `${duration(quantile(name, 0.5) * 1000)} / ${duration(quantile(name, 0.99) * 1000)}`)
  const cold = figures.by("topics_segment_bytes", "tier"), segments = figures.by("topics_segments", "tier")
  const rss = figures.sum("process_resident_memory_bytes")
  const cpu = figures.rate("process_cpu_seconds_total", before)
  return facts(
    ["Version", version], ["Up", duration(uptime)], ["Topics", count(sum("topics"))], ["Records", count(sum("records"))],
    ["Stored", bytes(sum("record_bytes"))], ["Written to the log", bytes(sum("wal_written_bytes_total"))],
    ["fsync p50 / p99", pair(SYNC)], ["Delivery p50 / p99", pair(DELIVERY)],
    ["Checkpoints", count(sum("checkpoints_total")), sum("checkpoints_failed") > 0 && el("strong", {}, " the last failed")],
    ["Segments", `${count(segments.get("hot") ?? 0)}, ${bytes(cold.get("hot") ?? 0)}`],
    ["Cold tier", (segments.get("cold") ?? 0) === 0 ? "nothing" : `${count(segments.get("cold"))}, ${bytes(cold.get("cold"))}`, sum("cold_store_failing") > 0 && el("strong", {}, " it fails")],
    ["Connections", count(sum("connections"))], ["Streams", count(sum("streams"))], ["Watches", count(sum("watch_sessions"))],
    ["Waiting reads", count(sum("waiting_readers"))], ["Requests held", bytes(sum("request_held_bytes"))],
    ["Answers unsent", bytes(sum("unsent_bytes"))], ["Dead letters blocked", count(sum("dead_letter_blocked"))],
    ["Schedules", count(sum("schedules")), sum("schedules_blocked") > 0 && el("strong", {}, ` ${sum("schedules_blocked")} blocked`)],
    ["Bugs met", count(sum("request_bugs_total") + sum("connection_bugs_total"))],
    rss !== null && ["Memory", bytes(rss)], cpu !== null && ["CPU", `${Math.round(cpu * 100)} %`])
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

// What the server tells of it: numbers as they are, and those in groups by the group's name.
function pressureOf(answer) {
  const { performance: _, ...told } = answer
  const pairs = Object.entries(told).flatMap(([name, value]) => value !== null && typeof value === "object"
    ? Object.entries(value).map(([inner, one]) => [`${name} ${inner}`, String(one)]) : [[name, String(value)]])
  return [el("h2", {}, "Pressure"), facts(...pairs)]
}
