// A topic as it is written. Rows are drawn a few times a second, at most so many are kept, and while there are more to be
// drawn nothing is read: who is slow reads behind, as any watcher, and is shown how far.
import { button, count, el, put, table } from "./dom.mjs"
import { call, notice, pause, tell } from "./api.mjs"
import { COLUMNS, lossRow, recordRow } from "./records.mjs"
import { Watch } from "./watch.mjs"

const ROWS_MAX = 200, BEFORE = 20, DRAW_MS = 100, GAPS_MAX = 100

export function tail(topic, gaps) {
  const body = el("tbody"), state = el("p", { class: "quiet" })
  const stop = button("Pause", toggle), now = button("Only what comes now", skip)
  let watch = null, running = null, leaving, shown_seq = 0, dropped = 0

  function say(text) {
    const more = dropped > 0 ? ` The newest ${ROWS_MAX} rows are kept here.` : ""
    if (state.textContent !== text + more) state.textContent = text + more
  }

  async function run() {
    const mine = (running = new AbortController())
    leaving.addEventListener("abort", () => mine.abort(), { signal: mine.signal })
    stop.textContent = "Pause"
    notice(element, "")
    try {
      watch ??= new Watch(topic, await beginning(mine.signal))
      for await (const { event, data } of watch.events(mine.signal)) {
        if (mine.signal.aborted) return
        take(event, data)
        if (event === "record") await pause(DRAW_MS, mine.signal)
      }
    } catch (error) {
      if (!mine.signal.aborted) tell(error, element)
    }
  }

  async function beginning(signal) {
    const { head_seq: head, evict_floor: floor } = await call("topic", { params: { topic }, query: { touch: false }, signal })
    return { from_seq: Math.max(floor - 1, head - BEFORE, 0) }
  }

  function take(event, data) {
    if (event === "record") {
      const records = data.records.slice(-ROWS_MAX)
      const skipped = data.records.length - records.length
      add([...records.map((record) => recordRow(topic, record)).reverse(), skipped > 0 && note(`${count(skipped)} records before these came at once; read them under Records`)].filter(Boolean))
      shown_seq = data.to_seq
      const behind = data.head_seq - data.to_seq
      say(behind > 0 ? `Behind by ${count(behind)}.` : `Live, at ${count(data.to_seq)}.`)
    } else if (event === "tombstone") {
      gaps.push(data)
      if (gaps.length > GAPS_MAX) gaps.shift()
      add([lossRow(data)])
    } else if (event === "caught-up") {
      shown_seq = data.head_seq
      say(`Live, at ${count(data.head_seq)}.`)
    } else if (event === "topic-deleted") {
      add([note("The topic was deleted.")])
      say("It is over.")
    } else if (event === "error") {
      say(`The server says: ${data.reason}${data.retry_after_ms ? `, for ${data.retry_after_ms} ms` : ""}.`)
    } else if (event === "broken") {
      say("The stream broke. It is asked for again.")
    }
  }

  function note(text) {
    return el("tr", { class: "loss" }, el("td", { colspan: COLUMNS.length }, text))
  }

  function add(rows) {
    body.prepend(...rows)
    while (body.children.length > ROWS_MAX && !body.lastChild.contains(document.activeElement)) {
      body.lastChild.remove()
      dropped++
    }
  }

  function toggle() {
    if (running.signal.aborted) {
      run()
    } else {
      running.abort()
      stop.textContent = "Go on"
      say(`Paused at ${count(shown_seq)}. It goes on from there.`)
    }
  }

  function skip() {
    running.abort()
    watch = new Watch(topic, { tail: true })
    put(body)
    dropped = 0
    say("Asking for what comes from now on…") // what comes before the server has answered is not shown
    run()
  }

  const element = el("section", { "aria-label": "Live" }, el("p", { class: "bar" }, stop, now, state), table("Records as they come, the newest first", COLUMNS, body))
  return { element, start: (signal) => { leaving = signal; run() } }
}
