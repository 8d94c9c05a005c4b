// One record, or one job, put by hand: to try a topic out, or a worker. The topic is never made by it.
import { el, field, put, short } from "./dom.mjs"
import { call, exact, Refused, tell } from "./api.mjs"

const DELAY_MS_MAX = 100 * 366 * 24 * 3600 * 1000 // a longer one is moved to this, and no answer tells of it

export function putting(topic) {
  const text = (more) => el("input", { type: "text", autocomplete: "off", spellcheck: "false", ...more })
  const number = (more) => el("input", { type: "number", min: "0", step: "1", inputmode: "numeric", ...more })
  const data = el("textarea", { rows: "6", spellcheck: "false", required: true })
  data.value = '{"test": true}'
  const tag = text({ maxlength: "256" }), key = text({ maxlength: "256" })
  const delay = number({ max: String(DELAY_MS_MAX), placeholder: "at once" }), priority = number({ max: "9", placeholder: "0" })
  const ofQueues = [field("Ready after, ms", delay), field("Priority, 0 to 9", priority)]
  const put_it = el("button", { type: "submit" }, "Put"), said = el("p", { role: "status" })
  let signal, isQueue = false

  function record() {
    const whole = (input) => (input.value === "" ? undefined : Number(input.value))
    return { data: exact(data.value), tag: tag.value || undefined, key: key.value || undefined, delay_ms: whole(delay), priority: whole(priority) }
  }

  async function send(event) {
    event.preventDefault()
    let one
    data.removeAttribute("aria-invalid")
    try {
      one = record()
    } catch (error) {
      data.setAttribute("aria-invalid", "true")
      data.focus()
      put(said, `The data is not JSON (${short(error.message, 120)}). A text stands in quotes: "hello".`)
      return
    }
    try {
      const { last_seq: seq } = await call("write", { params: { topic }, body: { records: [one], create: false }, signal })
      put(said, `Put as ${isQueue ? "job" : "record"} `, el("a", { href: `#/topics/${encodeURIComponent(topic)}/why/${seq}` }, String(seq)), ".")
    } catch (error) {
      if (error instanceof Refused) put(said, error.message)
      else tell(error, element)
    }
  }

  function look({ type }) {
    isQueue = type === "queue"
    for (const one of ofQueues) one.hidden = !isQueue
    put_it.textContent = isQueue ? "Put the job" : "Put the record"
  }

  const element = el("section", { "aria-label": "Put" },
    el("form", { onsubmit: send }, field("Data, as JSON", data), el("div", { class: "fields" }, field("Tag", tag), field("Key", key), ofQueues), el("p", { class: "buttons" }, put_it)), said)
  return { element, start: (until) => { signal = until }, look }
}
