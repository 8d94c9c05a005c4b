// Workers: who holds jobs of which queues, how many, and until when. A server keeps leases, not workers: one that holds
// nothing is nowhere.
import { beginning, count, data, el, emptyRow, put, renew, row, table, time } from "./dom.mjs"
import { call, poll } from "./api.mjs"
import { Figures } from "./figures.mjs"

const LOOK_MS = 3000, QUEUES_MAX = 20, JOBS_MAX = 250, NAMED_MAX = 5
const COLUMNS = [["Worker", "name"], ["Queue"], ["Holds", "n"], ["Tried before", "n wide"], ["First runs out"], ["Jobs", "fill wide"]]

export function workers() {
  const body = el("tbody"), about = el("p", { class: "quiet" })
  let prefix = "", found = null
  const search = beginning("Workers", (typed) => { prefix = typed; if (found !== null) draw() })
  const element = el("div", {}, el("h1", { tabindex: "-1" }, "Workers"), el("p", { class: "bar" }, search), about, table("Workers by what they hold", COLUMNS, body))

  const start = (signal) => poll(signal, LOOK_MS, async () => {
    const figures = await Figures.look(signal)
    const busy = [...figures.by("topics_queue_in_flight", "topic")].filter(([, held]) => held > 0).sort((a, b) => b[1] - a[1])
    const looked = busy.slice(0, QUEUES_MAX), leases = []
    for (const [queue] of looked) leases.push(...await heldIn(queue, signal))
    found = [...byWorker(leases)].sort((a, b) => b[1].jobs.length - a[1].jobs.length)
    draw()
    put(about, told(busy, looked, leases.length))
  })

  function draw() {
    const rows = found.filter(([, { worker }]) => worker.startsWith(prefix))
    if (rows.length > 0) renew(body, rows.map(([key, one]) => [key, workerRow(one)]))
    else put(body, emptyRow(COLUMNS, prefix ? "No worker begins so." : "Nobody holds a job."))
  }
  return { title: "Workers", element, start }
}

async function heldIn(queue, signal) {
  try {
    const { jobs } = await call("peek", { params: { topic: queue }, body: { state: "in_flight", limit: JOBS_MAX }, signal })
    return jobs.filter(({ node }) => node !== undefined).map((job) => ({ queue, worker: job.node, seq: job.$seq, deadline: job.deadline, deliveries: job.deliveries }))
  } catch (error) {
    if (error.code === "topic_not_found") return [] // it has gone since
    throw error
  }
}

function byWorker(leases) {
  const found = new Map()
  for (const { queue, worker, ...job } of leases) {
    const key = JSON.stringify([worker, queue])
    if (!found.has(key)) found.set(key, { worker, queue, jobs: [] })
    found.get(key).jobs.push(job)
  }
  return found
}

function workerRow({ worker, queue, jobs }) {
  const path = `#/topics/${encodeURIComponent(queue)}`
  const named = jobs.slice(0, NAMED_MAX).flatMap(({ seq }, i) => [i > 0 && ", ", el("a", { href: `${path}/why/${seq}` }, String(seq))])
  return row(COLUMNS,
    data(worker), el("a", { class: "data", href: `${path}/jobs` }, queue), count(jobs.length),
    count(jobs.filter(({ deliveries }) => deliveries > 1).length), time(Math.min(...jobs.map(({ deadline }) => deadline))),
    [...named, jobs.length > NAMED_MAX && ", …"])
}

// What was looked at, where that is not all.
function told(busy, looked, leases) {
  const all = busy.reduce((sum, [, held]) => sum + held, 0)
  if (all <= leases) return ""
  const queues = busy.length > looked.length ? `the ${QUEUES_MAX} queues with the most of them` : "each queue"
  return `Jobs are in flight: ${count(all)}. Looked at are ${count(leases)}, the first ${JOBS_MAX} of ${queues}.`
}
