// One topic watched over server-sent events. They are read with fetch, for EventSource sends no key but in its address.
// A watch that is left (its signal is aborted) goes on where it was when it is asked again: by the id of the last event, or
// by a new session from the last seq if the server has none of that name any more.
import { ask, call, exact, pause, Refused } from "./api.mjs"

const AGAIN_MS = 2000

export class Watch {
  // `start`: {from_seq} or {tail: true}, as POST /v0/watch has it.
  constructor(topic, start) {
    this.topic = topic
    this.start = start
    this.session = null
    this.last_id = null
  }

  // Events as {event, data}, until the topic is gone or the signal aborts. {event: "broken"} is ours: it is tried again.
  async *events(signal) {
    while (!signal.aborted) {
      try {
        await this.#begin(signal)
        const headers = { accept: "text/event-stream" }
        if (this.last_id !== null) headers["last-event-id"] = this.last_id
        const answer = await ask("events", { params: { wid: this.session }, headers, signal })
        yield { event: "open" }
        for await (const event of parsed(answer.body)) {
          yield event
          this.#took(event)
          if (event.event === "topic-deleted") return
          if (event.event === "error" && event.data.code !== 429) break
        }
      } catch (error) {
        if (signal.aborted) return
        if (error instanceof Refused && error.code !== "not_found" && error.status < 500) throw error
        if (error instanceof Refused && error.code === "not_found") this.session = null
      }
      yield { event: "broken" }
      await pause(AGAIN_MS, signal)
    }
  }

  async #begin(signal) {
    if (this.session !== null) return
    const body = { topics: { [this.topic]: this.start }, include_tags: true }
    const { wid, topics } = await call("watch", { body, signal })
    const { from_seq, epoch } = topics[this.topic]
    this.start = { from_seq, epoch }
    this.session = wid
    this.last_id = null
  }

  // Once it is shown it counts, not before: who leaves in between gets it again.
  #took({ event, data, id }) {
    if (id) this.last_id = id
    if (event === "record") this.start = { ...this.start, from_seq: data.to_seq }
    if (event === "tombstone") {
      this.start = data.reason === "recreated" ? { from_seq: 0, epoch: data.epoch } : { ...this.start, from_seq: data.gap_to }
    }
  }
}

// The events of a stream (HTML, 9.2): fields a line, an empty line ends an event, a comment is nothing.
async function* parsed(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader()
  let rest = "", event = {}
  try {
    for (;;) {
      const { value, done } = await reader.read()
      if (done) return
      const lines = (rest + value).split("\n")
      rest = lines.pop()
      for (const line of lines.map((line) => line.replace(/\r$/, ""))) {
        if (line === "") {
          if (event.data !== undefined) yield { event: event.event ?? "message", id: event.id, data: exact(event.data) }
          event = {}
          continue
        }
        const at = line.indexOf(":")
        const name = at < 0 ? line : line.slice(0, at), text = at < 0 ? "" : line.slice(at + 1).replace(/^ /, "")
        if (name === "data") event.data = event.data === undefined ? text : `${event.data}\n${text}`
        else if (name === "event" || name === "id") event[name] = text
      }
    }
  } finally {
    reader.cancel().catch(() => {})
  }
}
