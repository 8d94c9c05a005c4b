// Schedules: what is put where and when, the last time and the next.
import { beginning, button, data, el, emptyRow, named, period, put, renew, row, table, time } from "./dom.mjs"
import { call, poll } from "./api.mjs"
import { ending } from "./ending.mjs"
import { scheduling } from "./scheduling.mjs"

const LIST_MS = 3000, PAGE_SIZE = 100
const COLUMNS = [["Schedule", "name"], ["Topic", "name"], ["When"], ["Last", "wide"], ["Next"], ["If missed", "wide"], ["Record", "fill wide"]]

export function schedules(part) {
  if (part === "new") return scheduling()
  const body = el("tbody"), pages = el("p", { class: "buttons" }), said = el("p", { role: "status" })
  let prefix = "", cursors = [undefined], look = async () => {}
  const turn = () => look().catch(() => {})
  const search = beginning("Schedules", (typed) => { prefix = typed; cursors = [undefined]; turn() })
  const element = el("div", {}, el("h1", { tabindex: "-1" }, "Schedules"), el("div", { class: "bar" }, search, el("a", { class: "button", href: "#/schedules/new" }, "New schedule"), pages, said), table("Schedules", COLUMNS, body))

  const start = (signal) => {
    const end = ({ schedule, topic }) => ending("schedule", schedule, () => `Remove the schedule ${schedule}? What it has put into ${topic} stays, and nothing more is put by it.`, said, async () => {
      const { deleted } = await call("end_schedule", { params: { schedule }, signal })
      turn()
      return deleted
    })
    look = async () => {
      const asked = `${prefix} ${cursors.at(-1)}`
      const { schedules, next_cursor: next } = await call("schedules", { query: { prefix, page_size: PAGE_SIZE, cursor: cursors.at(-1) }, signal })
      if (asked !== `${prefix} ${cursors.at(-1)}`) return // another page was asked for meanwhile
      if (schedules.length > 0) renew(body, schedules.map((one) => [`${one.schedule} ${one.topic}`, scheduleRow(one, end(one))]))
      else put(body, emptyRow(COLUMNS, prefix ? "No schedule begins so." : ["There are no schedules. ", el("a", { href: "#/schedules/new" }, "Make the first")]))
      put(pages, cursors.length > 1 && button("← Before", () => { cursors.pop(); turn() }), next && button("More →", () => { cursors.push(next); turn() }))
    }
    poll(signal, LIST_MS, () => look())
  }
  return { title: "Schedules", element, start }
}

function scheduleRow({ schedule, topic, cron, every_ms: every, timezone, last_fired: last, next_fire: next, catch_up: missed, record }, end) {
  return row(COLUMNS,
    named(schedule, end), el("a", { class: "data", href: `#/topics/${encodeURIComponent(topic)}/live` }, topic),
    el("span", {}, cron === null ? `every ${period(every)}` : el("code", {}, cron), cron === null || timezone === "UTC" ? "" : ` ${timezone}`),
    time(last), next === null ? "never again" : time(next), missed, data(record))
}
