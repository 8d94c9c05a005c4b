// A worker on a queue, for Node 22: node worker.mjs ws://127.0.0.1:4000/v0/ws jobs ./handler.mjs
// handler.mjs: export async function handle(job) { ... }; what it throws gives the job back.
import { pathToFileURL } from "node:url"

const [url, topic, handler] = process.argv.slice(2), node = `js-${process.pid}`, lease_ms = 30_000
const { handle } = await import(pathToFileURL(handler))
const key = process.env.TOPICS_API_KEY // where the server asks for one
const protocols = ["topics.v0", ...(key ? [`topics.key.${Buffer.from(key).toString("base64url")}`] : [])]
const rest_ms = (failures) => Math.min(500 * 2 ** failures, 60_000)
const under_way = new Set()
let say, failures = 0, is_stopping = false

function connect() {
  const own = new WebSocket(url, protocols)
  const tell = (say = (fields) => own.readyState === 1 && (own.send(JSON.stringify({ topic, node, ...fields })), true))
  own.onopen = () => tell({ op: "work", max: 8, lease_ms })
  own.onmessage = ({ data }) => {
    const message = JSON.parse(data)
    if (message.op === "stopped") Promise.all(under_way).then(() => own.close())
    if (message.op === "error") console.error(message.code, message.message), own.close() // and again, later
    if (message.op !== "job") return
    failures = 0
    const done = settle(message, tell).then(() => under_way.delete(done))
    under_way.add(done)
  }
  own.onerror = () => {} // the end is told by onclose
  own.onclose = () => is_stopping || setTimeout(connect, rest_ms(++failures) * (0.5 + Math.random() / 2))
}

async function settle(job, tell) {
  const lease = { seqs: [job.$seq], lease_ids: [job.lease_id] }
  const longer = setInterval(tell, lease_ms / 3, { op: "extend", lease_ms, ...lease })
  await Promise.resolve(job).then(handle).then(
    () => tell({ op: "ack", ...lease }),
    (error) => tell({ op: "nack", reason: `${error}`.slice(0, 300), delay_ms: rest_ms(job.deliveries), ...lease }))
  clearInterval(longer)
}

// Finish what is under way, take no more.
process.on("SIGTERM", () => ((is_stopping = true), say({ op: "stop_work" }) || process.exit()))
connect()
