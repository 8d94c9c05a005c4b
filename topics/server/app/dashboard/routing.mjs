// A new router: what comes into one topic from now on is copied into another. One of this name that is there is never changed.
import { choice, count, el, field, put } from "./dom.mjs"
import { call } from "./api.mjs"
import { sending, text } from "./forms.mjs"
import { matchOf } from "./records.mjs"

const GUARANTEES = {
  at_least_once: "Each record is copied, and a restart repeats none.",
  exactly_once: "Each record is copied, and a restart repeats none: for readers to see that, the meta of each copy has _topics_router, always the same for the same record.",
}

export function routing() {
  const name = text({ required: true, maxlength: "255", placeholder: "orders->archive" })
  const source = text({ required: true, maxlength: "255" }), dest = text({ required: true, maxlength: "255" })
  const tag = text({ maxlength: "256", placeholder: "all; or eu, or eu*" })
  const guarantee = choice(Object.keys(GUARANTEES)), chosen = el("p", { class: "quiet", role: "status" }), said = el("p", { role: "status" })
  const inputs = new Map([["router", name], ["source", source], ["dest", dest], ["filter", tag], ["guarantee", guarantee]])
  let signal

  const show = () => put(chosen, GUARANTEES[guarantee.value])

  async function isThere(topic) {
    const { topics: [first] } = await call("topics", { query: { prefix: topic, page_size: 1, touch: false }, signal })
    return first?.topic === topic
  }

  async function create() {
    const { routers: [there] } = await call("routers", { query: { prefix: name.value, page_size: 1 }, signal })
    if (there?.router === name.value) {
      return put(said, `There is a router of this name already, from ${there.source} to ${there.dest}. It was not changed.`)
    }
    const missing = []
    for (const { value } of [source, dest]) if (!(await isThere(value))) missing.push(value)
    const made = await call("put_router", { params: { router: name.value }, signal, body: {
      source: source.value, dest: dest.value, filter: matchOf(tag.value), guarantee: guarantee.value,
    } })
    put(said, made.created ? "Made: " : "Somebody else made it at this moment; now it is as it is asked for here: ", el("a", { class: "data", href: "#/routers" }, made.router),
      `. What comes into ${made.source} from now on is copied into ${made.dest}`, made.created && made.cursor > 0 && `; what is there already, up to seq ${count(made.cursor)}, is not`, ".",
      missing.length > 0 && ` ${missing.join(" and ")} ${missing.length === 1 ? "was" : "were"} not there, and ${missing.length === 1 ? "was" : "were"} made.`)
  }

  guarantee.addEventListener("change", show)
  show()
  const element = el("div", {}, el("h1", { tabindex: "-1" }, "New router"),
    el("form", { onsubmit: sending(inputs, said, create), class: "fields" },
      field("Name", name), field("From the topic", source), field("To the topic", dest), field("Only with the tag", tag), field("Guarantee", guarantee), chosen,
      el("p", { class: "buttons" }, el("button", { type: "submit" }, "Create"))),
    said, el("p", { class: "quiet" }, "It copies what comes from now on. A topic that is not there is made, the second in the durability of the first. A topic is fed from one other topic at most."))
  return { title: "New router", element, start: (until) => { signal = until } }
}
