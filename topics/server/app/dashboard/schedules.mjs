// Schedules: what is put where and when, the last time and the next.
import { button, data, el, emptyRow, put, renew, row, table, time } from "./dom.mjs"
import { call, poll } from "./api.mjs"

const LIST_MS = 3000, PAGE_SIZE = 100
const COLUMNS = [["Topic"], ["Schedule"], ["When"], ["Last"], ["Next"], ["Missed", "wide"], ["Record", "fill wide"]]

export function schedules() {
  const body = el("tbody"), pages = el("p", { class: "buttons" })
  const element = el("div", {}, el("h1", { tabindex: "-1" }, "Schedules"), table("Schedules", COLUMNS, body), pages)
  const cursors = [undefined]

  const start = (signal) => {
    const look = async () => {
      const { schedules, next_cursor: next } = await call("schedules", { query: { page_size: PAGE_SIZE, cursor: cursors.at(-1) }, signal })
      if (schedules.length > 0) renew(body, schedules.map((one) => [one.schedule, scheduleRow(one)]))
      else put(body, emptyRow(COLUMNS, "There are no schedules."))
      put(pages, cursors.length > 1 && button("← Before", () => { cursors.pop(); look() }), next && button("More →", () => { cursors.push(next); look() }))
    }
    poll(signal, LIST_MS, look)
  }
  return { title: "Schedules", element, start }
}

function scheduleRow({ schedule, topic, cron, every_ms: every, timezone, last_fired: last, next_fire: next, catch_up: missed, record }) {
  return row(COLUMNS,
    el("a", { class: "data", href: `#/topics/${encodeURIComponent(topic)}/live` }, topic), data(schedule),
    el("span", {}, cron === null ? `every ${every} ms` : el("code", {}, cron), cron === null || timezone === "UTC" ? "" : ` ${timezone}`),
    time(last), next === null ? "never again" : time(next), missed, data(record))
}
