// One topic: how it stands, its line of seqs with everybody's place on it, and a part of it below.
import { ago, bytes, count, el, facts, put, time } from "./dom.mjs"
import { call, poll, Refused } from "./api.mjs"
import { changing } from "./config.mjs"
import { deleting } from "./deleting.mjs"
import { jobs } from "./jobs.mjs"
import { seqLine, told } from "./line.mjs"
import { putting } from "./putting.mjs"
import { positions } from "./consumers.mjs"
import { reader } from "./records.mjs"
import { tail } from "./tail.mjs"
import { reasons } from "./why.mjs"

const STATE_MS = 2000, MARKS_MAX = 100
const PARTS = [["jobs", "Jobs", jobs], ["live", "Live", tail], ["records", "Records", reader], ["put", "Put", putting], ["why", "Why", reasons], ["consumers", "Consumers", positions], ["config", "Config", changing], ["delete", "Delete", deleting]]

// `of`: what the part is asked of, as the seq of a record.
export function topic(name = "", asked = "live", of = "") {
  const [path, text, make] = PARTS.find(([path]) => path === asked) ?? PARTS[1]
  const gaps = []
  const part = make(name, gaps, of)
  const figures = el("div"), line = el("div", { class: "whole" }), words = el("p", { class: "quiet" })
  const tabs = PARTS.map(([to, text]) =>
    el("a", { href: `#/topics/${encodeURIComponent(name)}/${to}`, "aria-current": to === path ? "page" : null, hidden: to === "jobs" && path !== "jobs" }, text))
  const nav = el("nav", { class: "tabs", "aria-label": "Parts of the topic" }, tabs), below = el("div", {}, part.element)
  const element = el("div", {},
    el("h1", { tabindex: "-1", class: "data" }, name), figures, line, words,
    nav, below)
  let consumers = []

  function draw(state) {
    tabs[0].hidden = state.type !== "queue"
    put(figures, facts(
      ["Type", state.type], ["Class", state.config.durability], ["Records", count(state.count)], ["Size", bytes(state.bytes)],
      ["Head", count(state.head_seq)], ["Durable", count(state.durable_seq)], ["Earliest", count(state.earliest_seq)],
      ["Lost below", count(state.evict_floor)], ["Epoch", count(state.epoch)], ["Priority", state.effective_priority], ["Last write", time(state.last_write_ts)]))
    put(line, seqLine(state, { height: 28, gaps, marks: [
      ...consumers.slice(0, MARKS_MAX).map(({ consumer, from_seq: seq, lag }) => ({ seq, kind: "consumer", text: `${consumer} has read up to ${count(seq)}, ${count(lag)} behind` })),
      { seq: state.durable_seq, kind: "durable", text: `a power cut now would leave all up to ${count(state.durable_seq)}` },
    ] }))
    put(words, told(state), consumers.length > 0 ? ` ${consumers.length === 1 ? "One consumer" : `${consumers.length} consumers, the slowest`} ${count(Math.max(...consumers.map(({ lag }) => lag)))} behind.` : "")
  }

  // The part begins once it is known that there is such a topic: of one that is not there nothing is asked again.
  function start(left) {
    const gone = new AbortController(), signal = AbortSignal.any([left, gone.signal])
    let isBegun = false
    const begin = () => {
      if (isBegun) return
      isBegun = true
      below.hidden = false
      part.start(signal)
    }
    below.hidden = true // a part that has not begun is not to be used
    poll(signal, STATE_MS, async () => {
      try {
        const [state, list] = await Promise.all([
          call("topic", { params: { topic: name }, query: { touch: false }, signal }),
          call("consumers", { params: { topic: name }, query: { page_size: 1000 }, signal }),
        ])
        consumers = list.consumers
        begin()
        draw(state)
        part.look?.(state, consumers)
      } catch (error) {
        if (left.aborted) return
        if (!(error instanceof Refused) || error.code !== "topic_not_found") {
          begin()
          throw error
        }
        if (!isBegun) {
          gone.abort()
          nav.hidden = true
        }
        put(figures, el("p", {}, "There is no such topic. ", el("a", { href: "#/" }, "All topics")))
        put(line)
        put(words)
      }
    })
  }

  return { title: `${name} ${text}`, key: name, element, start }
}
