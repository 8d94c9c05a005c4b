// A worker on a queue: node worker.mjs ws://127.0.0.1:4000/v0/ws jobs ./handler.mjs   (Node 22; 20: --experimental-websocket)
// handler.mjs: export async function handle(job) { ... }; what it throws gives the job back.
import { pathToFileURL } from "node:url"

const [url, topic, handler] = process.argv.slice(2)
const { handle } = await import(pathToFileURL(handler))
const node = `js-${process.pid}`, max = 8, lease_ms = 30_000
const under_way = new Set()
let socket, rest_ms = 100, is_stopping = false

function connect() {
  const own = (socket = new WebSocket(url, "topics.v0"))
  const say = (fields) => own.readyState === 1 && own.send(JSON.stringify({ topic, node, ...fields }))
  own.onopen = () => say({ op: "work", max, lease_ms })
  own.onmessage = async ({ data }) => {
    const message = JSON.parse(data)
    if (message.op === "working") rest_ms = 100
    if (message.op === "stopped") Promise.all(under_way).then(() => own.close())
    if (message.op === "error") console.error(message.code, message.message), own.close() // and asked again, later
    if (message.op === "job") {
      const done = settle(message, say)
      under_way.add(done), done.then(() => under_way.delete(done))
    }
  }
  own.onerror = () => {} // the end is told by onclose
  own.onclose = () => is_stopping || setTimeout(connect, (rest_ms = Math.min(2 * rest_ms, 10_000)) * (0.5 + Math.random() / 2))
}

async function settle(job, say) {
  const lease = { seqs: [job.$seq], lease_ids: [job.lease_id] }
  const longer = setInterval(() => say({ op: "extend", lease_ms, ...lease }), lease_ms / 3)
  await handle(job)
    .then(() => say({ op: "ack", ...lease }), (error) => say({ op: "nack", reason: `${error}`.slice(0, 300), ...lease }))
    .finally(() => clearInterval(longer))
}

process.on("SIGTERM", () => { // finish what is under way, take no more
  is_stopping = true
  if (socket.readyState === 1) socket.send(JSON.stringify({ op: "stop_work", topic }))
  else process.exit()
})
connect()
