// A worker on a queue: node worker.mjs ws://127.0.0.1:4000/v0/ws jobs ./handler.mjs
// Node 22; Node 20 has it with --experimental-websocket.
// handler.mjs: export async function handle(job) { ... }; what it throws gives the job back.
import { pathToFileURL } from "node:url"

const [url, topic, handler] = process.argv.slice(2)
const { handle } = await import(pathToFileURL(handler))
const key = process.env.TOPICS_API_KEY // where the server asks for one
const protocols = ["topics.v0", ...(key ? [`topics.key.${Buffer.from(key).toString("base64url")}`] : [])]
const node = `js-${process.pid}`, max = 8, lease_ms = 30_000
const under_way = new Set()
let socket, rest_ms = 100, is_stopping = false

function connect() {
  const own = (socket = new WebSocket(url, protocols))
  const say = (fields) => own.readyState === 1 && own.send(JSON.stringify({ topic, node, ...fields }))
  own.onopen = () => say({ op: "work", max, lease_ms })
  own.onmessage = async ({ data }) => {
    const message = JSON.parse(data)
    if (message.op === "working") rest_ms = 100
    if (message.op === "stopped") Promise.all(under_way).then(() => own.close())
    if (message.op === "error") console.error(message.code, message.message), own.close() // and again, later
    if (message.op === "job") {
      const done = settle(message, say)
      under_way.add(done), done.then(() => under_way.delete(done))
    }
  }
  own.onerror = () => {} // the end is told by onclose
  own.onclose = () => {
    rest_ms = Math.min(2 * rest_ms, 10_000)
    if (!is_stopping) setTimeout(connect, rest_ms * (0.5 + Math.random() / 2))
  }
}

async function settle(job, say) {
  const lease = { seqs: [job.$seq], lease_ids: [job.lease_id] }
  const longer = setInterval(() => say({ op: "extend", lease_ms, ...lease }), lease_ms / 3)
  try {
    await handle(job)
    say({ op: "ack", ...lease })
  } catch (error) {
    say({ op: "nack", reason: `${error}`.slice(0, 300), ...lease })
  }
  clearInterval(longer)
}

process.on("SIGTERM", () => { // finish what is under way, take no more
  is_stopping = true
  if (socket.readyState === 1) socket.send(JSON.stringify({ op: "stop_work", topic }))
  else process.exit()
})
connect()
