// One record, or one job, put by hand: to try a topic out, or a worker. The topic is never made by it.
import { el, field, put } from "./dom.mjs"
import { call } from "./api.mjs"
import { json, number, sending, text } from "./forms.mjs"

const DELAY_MS_MAX = 100 * 366 * 24 * 3600 * 1000 // a longer one is moved to this, and no answer tells of it

export function putting(topic) {
  const data = el("textarea", { rows: "6", spellcheck: "false", required: true })
  data.value = '{"test": true}'
  const tag = text({ maxlength: "256" }), key = text({ maxlength: "256" })
  const delay = number({ max: String(DELAY_MS_MAX), placeholder: "at once" }), priority = number({ max: "9", placeholder: "0" })
  const ofQueues = [field("Ready after, ms", delay), field("Priority, 0 to 9", priority)]
  const put_it = el("button", { type: "submit" }, "Put"), said = el("p", { role: "status" })
  const inputs = new Map([["data", data], ["tag", tag], ["key", key], ["delay_ms", delay], ["priority", priority]])
  let signal, isQueue = false

  function record() {
    const whole = (input) => (input.value === "" ? undefined : Number(input.value))
    return { data: json(data), tag: tag.value || undefined, key: key.value || undefined, delay_ms: whole(delay), priority: whole(priority) }
  }

  async function send() {
    const { last_seq: seq } = await call("write", { params: { topic }, body: { records: [record()], create: false }, signal })
    put(said, `Put as ${isQueue ? "job" : "record"} `, el("a", { href: `#/topics/${encodeURIComponent(topic)}/why/${seq}` }, String(seq)), ".")
  }

  function look({ type }) {
    isQueue = type === "queue"
    for (const one of ofQueues) one.hidden = !isQueue
    put_it.textContent = isQueue ? "Put the job" : "Put the record"
  }

  const element = el("section", { "aria-label": "Put" },
    el("form", { onsubmit: sending(inputs, said, send) }, field("Data, as JSON", data), el("div", { class: "fields" }, field("Tag", tag), field("Key", key), ofQueues), el("p", { class: "buttons" }, put_it)), said)
  return { element, start: (until) => { signal = until }, look }
}
