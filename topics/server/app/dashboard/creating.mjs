// A new topic: its name, its type, what a write to it waits for, and the bounds that most topics have. A field that is left
// empty has the server's default, and a topic of this name that is there is never changed.
import { choice, el, field, put } from "./dom.mjs"
import { call } from "./api.mjs"
import { number, sending, text, whole } from "./forms.mjs"

const TYPES = { log: "Records, which any number of readers follow.", queue: "Jobs, each of which one worker takes and finishes." }
const CLASSES = {
  disk: "A write is answered when the operating system has it: a power cut takes what the last second or so brought, the end of the server nothing.",
  fsync: "A write is answered when the disk has it: nothing takes it.",
  memory: "A write is answered when the operating system has it: a power cut takes what was not synced for other reasons, the end of the server nothing.",
  ephemeral: "A write is answered when it is in memory: the end of the server takes it.",
}
const BOUNDS = [
  ["cap_records", "Keep at most, records", "all"], ["cap_bytes", "Keep at most, bytes", "all"], ["ttl_ms", "Keep for at most, ms", "for ever"],
]
const OF_QUEUES = [["lease_ms", "A worker has a job for, ms", "30000"], ["max_deliveries", "Hand a job out at most, times", "until it is done"]]

export function creating() {
  const name = text({ required: true, maxlength: "255" }), letters = text({ placeholder: "none", maxlength: "255" })
  const type = choice(Object.keys(TYPES)), durability = choice(Object.keys(CLASSES)), chosen = el("p", { class: "quiet", role: "status" })
  const numbers = (rows) => rows.map(([key, label, placeholder]) => [key, label, number({ placeholder })])
  const bounds = numbers(BOUNDS), ofQueues = [...numbers(OF_QUEUES), ["dead_letter", "Then move it to the topic", letters]]
  const inputs = new Map([["topic", name], ["type", type], ["durability", durability], ...[...bounds, ...ofQueues].map(([key, , input]) => [key, input])])
  const queueFields = ofQueues.map(([, text, input]) => field(text, input)), said = el("p", { role: "status" })
  let signal

  function show() {
    for (const one of queueFields) one.hidden = type.value !== "queue"
    put(chosen, `${TYPES[type.value]} ${CLASSES[durability.value]}`)
  }

  const filled = () => [...bounds, ...(type.value === "queue" ? ofQueues : [])].filter(([, , input]) => input.value !== "")

  function asked() {
    return { type: type.value, durability: durability.value, ...Object.fromEntries(filled().map(([key, , input]) => [key, input.type === "number" ? whole(input.value) : input.value])) }
  }

  const movedIn = (config) => filled().filter(([key, , input]) => input.type === "number" && Number(input.value) !== config[key])
    .map(([key, text, input]) => `${text}: ${input.value} is out of range, and was moved to ${config[key]}.`)

  async function create() {
    const { topic, created, config } = await call("create", { params: { topic: name.value }, query: { replace: false }, body: asked(), signal })
    const path = `#/topics/${encodeURIComponent(topic)}/${config.type === "queue" ? "jobs" : "live"}`
    const link = el("a", { class: "data", href: path }, topic), moved = movedIn(config)
    if (!created) put(said, "There is such a topic already, with what is asked for here: ", link)
    else if (moved.length > 0) put(said, "Made: ", link, `. ${moved.join(" ")}`)
    else location.hash = path
  }

  for (const one of [type, durability]) one.addEventListener("change", show)
  show()
  const element = el("div", {}, el("h1", { tabindex: "-1" }, "New topic"),
    el("form", { onsubmit: sending(inputs, said, create), class: "fields" },
      field("Name", name), field("Type, which never changes", type), field("Durability", durability), chosen,
      bounds.map(([, text, input]) => field(text, input)), queueFields, el("p", { class: "buttons" }, el("button", { type: "submit" }, "Create"))),
    said, el("p", { class: "quiet" }, "What is left empty has its default. Everything else, and all of this but the type, can be changed later under Config."))
  return { title: "New topic", element, start: (until) => { signal = until } }
}
