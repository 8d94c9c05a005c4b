// A new schedule: a record that is put into a topic whenever its time comes. One of this name that is there is never changed.
import { ago, choice, el, field, moment, period, put } from "./dom.mjs"
import { call } from "./api.mjs"
import { json, number, sending, text, whole } from "./forms.mjs"

const COMING = 5
const MISSED = {
  last: "Of the times at which no server was there, the last one is made up for.",
  all: "All times at which no server was there are made up for, the last 1,000 at most.",
  none: "No time at which no server was there is made up for.",
}

export function scheduling() {
  const name = text({ required: true, maxlength: "255" }), topic = text({ required: true, maxlength: "255" })
  const when = choice(["every", "cron"]), every = number({ required: true, value: "3600000" })
  const cron = text({ placeholder: "0 3 * * 1-5" }), zone = text({ placeholder: "UTC; or Europe/Berlin" })
  const data = el("textarea", { rows: "4", spellcheck: "false", required: true })
  data.value = "null"
  const missed = choice(Object.keys(MISSED)), chosen = el("p", { class: "quiet", role: "status" }), said = el("p", { role: "status" }), next = el("div")
  const inputs = new Map([["schedule", name], ["topic", topic], ["every_ms", every], ["cron", cron], ["timezone", zone], ["data", data], ["catch_up", missed]])
  const ofEvery = field("Every, ms", every), ofCron = [field("Minute, hour, day, month, weekday", cron), field("In the time of", zone)]
  let signal

  function show() {
    const isCron = when.value === "cron"
    ofEvery.hidden = isCron
    for (const one of ofCron) one.hidden = !isCron
    every.required = !isCron
    cron.required = isCron
    put(chosen, MISSED[missed.value])
  }

  function asked() {
    const times = when.value === "cron" ? { cron: cron.value, timezone: zone.value || undefined } : { every_ms: whole(every.value) }
    return { topic: topic.value, ...times, catch_up: missed.value, record: { data: json(data) } }
  }

  async function create() {
    put(next)
    const body = asked()
    const { schedules: [there] } = await call("schedules", { query: { prefix: name.value, page_size: 1 }, signal })
    if (there?.schedule === name.value) return put(said, `There is a schedule of this name already, into ${there.topic}. It was not changed.`)
    const made = await call("put_schedule", { params: { schedule: name.value }, body, signal })
    const isMoved = made.every_ms !== null && made.every_ms !== Number(every.value)
    put(said, made.created ? "Made: " : "Somebody else made it at this moment; now it is as it is asked for here: ",
      el("a", { class: "data", href: "#/schedules" }, made.schedule), `, ${made.cron === null ? `every ${period(made.every_ms)}` : "by cron"}, into ${made.topic}.`,
      isMoved && ` ${every.value} ms is out of range, and was moved to ${made.every_ms}.`, " The next times, by the clock of this browser:")
    const { coming } = await call("schedule", { params: { schedule: made.schedule }, query: { coming: COMING }, signal })
    put(next, el("ul", {}, coming.map((at) => el("li", {}, el("time", { datetime: new Date(at).toISOString() }, moment(at)), `, ${ago(at)}`))))
  }

  for (const one of [when, missed]) one.addEventListener("change", show)
  show()
  const element = el("div", {}, el("h1", { tabindex: "-1" }, "New schedule"),
    el("form", { onsubmit: sending(inputs, said, create), class: "fields" },
      field("Name", name), field("Into the topic", topic), field("When", when), ofEvery, ofCron, field("If missed", missed), chosen,
      el("div", { class: "across" }, field("Data, as JSON", data)), el("p", { class: "buttons" }, el("button", { type: "submit" }, "Create"))),
    said, next, el("p", { class: "quiet" }, "Its topic is there before. A number of milliseconds counts since 1970, so an hour is a full one; a cron has five fields or is a word such as @daily, in local time where a zone is named."))
  return { title: "New schedule", element, start: (until) => { signal = until } }
}
