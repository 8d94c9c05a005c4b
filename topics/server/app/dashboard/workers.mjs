// Workers: who holds jobs of which queues, how many, and until when. A server keeps leases, not workers: one that holds
// nothing is nowhere.
import { count, data, el, row, time } from "./dom.mjs"
import { call } from "./api.mjs"
import { Figures } from "./figures.mjs"
import { foundByName } from "./found.mjs"

const LOOK_MS = 3000, QUEUES_MAX = 20, JOBS_MAX = 250, NAMED_MAX = 5
const COLUMNS = [["Worker", "name"], ["Queue"], ["Holds", "n"], ["Tried before", "n wide"], ["First runs out"], ["Jobs", "fill wide"]]

export function workers() {
  const look = async (signal) => {
    const figures = await Figures.look(signal)
    const busy = [...figures.by("topics_queue_in_flight", "topic")].filter(([, held]) => held > 0).sort((a, b) => b[1] - a[1])
    const looked = busy.slice(0, QUEUES_MAX), leases = []
    for (const [queue] of looked) leases.push(...await heldIn(queue, signal))
    const found = [...byWorker(leases)].sort((a, b) => b[1].jobs.length - a[1].jobs.length)
    return { entries: found.map(([key, one]) => [one.worker, key, () => workerRow(one)]), about: told(busy, looked, leases.length) }
  }
  return foundByName({ title: "Workers", one: "worker", caption: "Workers by what they hold", columns: COLUMNS, every_ms: LOOK_MS, none: "Nobody holds a job.", look })
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
