// Durable consumers: those of one topic with where they stand, and those of all with how far they are behind.
import { button, count, data, el, emptyRow, named, opened, put, renew, row, table, time } from "./dom.mjs"
import { attempt, call } from "./api.mjs"
import { ending } from "./ending.mjs"
import { Figures } from "./figures.mjs"
import { foundByName } from "./found.mjs"
import { moving } from "./moving.mjs"

const FIGURES_MS = 5000
const HERE = [["Consumer", "name"], ["Read up to", "n"], ["Behind", "n"], ["Moved", "wide"]]
const ALL = [["Topic", "name"], ["Consumer"], ["Behind", "n"]]
const FORGOTTEN = (name, topic) => `Remove the consumer ${name} of ${topic}? Every record stays; the position is forgotten. Who reads by this name is refused then,`
  + " until somebody makes it again: with the first record, or where it is told to begin."

export function positions(topic) {
  const body = el("tbody"), said = el("p", { role: "status" })
  let state, all = [], signal, retell = () => {}
  const found = (name) => all.find(({ consumer }) => consumer === name)

  function look(now, consumers) {
    state = now
    all = consumers
    if (all.length > 0) renew(body, all.map((one) => [one.consumer, row(HERE, named(one.consumer, ...buttons(one.consumer)), count(one.from_seq), count(one.lag), time(one.updated_ts))]))
    else put(body, emptyRow(HERE, "Nobody keeps a position here."))
    retell()
  }

  const buttons = (name) => [button("Move…", () => move(name), { "aria-label": `Move the consumer ${name}…` }), ending("consumer", name, () => FORGOTTEN(name, topic), said, async () => {
    const { deleted } = await call("end_consumer", { params: { topic, consumer: name }, signal })
    look(state, all.filter(({ consumer }) => consumer !== name))
    return deleted
  })]

  async function move(name) {
    const { dialog, tell, seq } = moving(name, () => [state, found(name)])
    retell = tell
    const answer = await opened(dialog)
    retell = () => {}
    if (answer !== "yes" || found(name) === undefined) return
    put(said)
    await attempt(said, async () => {
      const { from_seq: before, epoch } = found(name)
      const moved = await call("move", { params: { topic, consumer: name }, body: { from_seq: seq(), epoch }, signal })
      put(said, `${name} was moved from ${count(before)} to ${count(moved.from_seq)}.`)
      look(state, all.map((one) => (one.consumer === name ? moved : one)))
    })
  }

  return { element: el("section", { "aria-label": "Consumers" }, said, table("Consumers", HERE, body)), start: (until) => { signal = until }, look }
}

export function consumers() {
  const look = async (signal) => {
    const found = (await Figures.look(signal)).all("topics_consumer_lag").toSorted((a, b) => b.value - a.value)
    const entries = found.map(({ labels: { topic, consumer }, value }) => [consumer, `${topic} ${consumer}`, () => row(ALL,
      el("a", { class: "data", href: `#/topics/${encodeURIComponent(topic)}/consumers` }, topic), data(consumer), count(value))])
    return { entries, about: found.length === 0 ? "" : "Those of the topics created first, as the metrics have them; all of a topic are on its page." }
  }
  return foundByName({ title: "Consumers", one: "consumer", caption: "Consumers by how far they are behind", columns: ALL, every_ms: FIGURES_MS, none: "No consumer keeps a position.", look })
}
