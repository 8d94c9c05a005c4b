// All of one record or job: what stands beside its data, its meta, and the data as JSON, indented.
import { ago, button, bytes, count, data, el, facts, moment, short, shown } from "./dom.mjs"

const VIEW_MAX = 64 * 1024, META_MAX = 16 * 1024
const WORDS = {
  $ts: "Written at", $tag: "Tag", $node: "Written by", $key: "Key", $content_type: "Content type", state: "State", deliveries: "Handed out",
  priority: "Priority", reason: "Failed because", node: "Held by", deadline: "Held until", ready_at: "Ready at",
}
const MOMENTS = new Set(["$ts", "deadline", "ready_at"])

export function whole(topic, record) {
  const { $seq: seq, $ts, data: payload, meta, ...more } = record
  const beside = Object.entries({ $ts, ...more }).map(([name, value]) => [WORDS[name] ?? name, MOMENTS.has(name) ? `${moment(value)}, ${ago(value)}` : data(name === "state" ? value.replaceAll("_", " ") : value, META_MAX)])
  const metas = Object.entries(meta ?? {}).map(([name, value]) => [data(name), data(value, META_MAX)])
  return el("div", { class: "record" },
    facts(["Seq", el("a", { href: `#/topics/${encodeURIComponent(topic)}/why/${seq}`, title: "Why: what became of it, by the log" }, count(seq), " – what became of it")], ...beside),
    metas.length > 0 && [el("h3", {}, "Meta"), facts(...metas)], el("h3", {}, "Data"), text(seq, payload))
}

// Of a large one the beginning until more is asked for.
function text(seq, payload) {
  const all = JSON.stringify(payload, null, 2) ?? "none"
  const pre = el("pre", { class: "data", tabindex: "0", "aria-label": `Record ${seq}` }, shown(short(all, VIEW_MAX)))
  if (all.length <= VIEW_MAX) return pre
  const more = button(`Show all (${bytes(all.length)})`, () => { pre.textContent = shown(all); more.remove() })
  return el("div", {}, pre, more)
}
