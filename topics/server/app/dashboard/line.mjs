// A topic as a line of its seqs, 1 on the left, the head on the right: what was lost to caps and age, what went silently
// (done, deleted, expired by itself), what lives, and marks on it.
import { svg, count } from "./dom.mjs"

const WIDTH = 1000

// `state`: what the server says of the topic. `marks`: {seq, kind, text}; `gaps`: {gap_from, gap_to, reason}.
export function seqLine(state, { marks = [], gaps = [], height = 14 } = {}) {
  const { head_seq: head, earliest_seq: earliest, evict_floor: floor } = state
  const x = (seq) => (head === 0 ? 0 : ((seq - 1) * WIDTH) / head) // the left end of a seq
  const parts = []
  const part = (kind, from, to, text) => {
    if (to < from) return
    const width = Math.max(x(to + 1) - x(from), 3)
    parts.push(svg("rect", { class: kind, x: Math.min(x(from), WIDTH - width), y: 0, width, height }, svg("title", {}, text)))
  }
  part("lost", 1, floor - 1, `${range(1, floor - 1)}: lost to the caps or the age`)
  part("gone", Math.max(floor, 1), earliest - 1, `${range(floor, earliest - 1)}: ${gone(state)}`)
  part("live", earliest, head, `${range(earliest, head)}: ${count(state.count)} live`)
  for (const gap of gaps) part("lost", gap.gap_from, gap.gap_to, `${range(gap.gap_from, gap.gap_to)}: lost (${gap.reason})`)
  for (const { seq, kind, text } of marks) {
    const at = Math.min(Math.max(x(seq + 1), 2), WIDTH - 2)
    parts.push(svg("rect", { class: `mark ${kind}`, x: at - 2, y: 0, width: 4, height }, svg("title", {}, text)))
  }
  return svg("svg", { class: "seqs", viewBox: `0 0 ${WIDTH} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": told(state) }, parts)
}

export function told(state) {
  const { head_seq: head, earliest_seq: earliest, evict_floor: floor, count: live } = state
  if (head === 0) return "Nothing was written yet."
  const words = []
  if (floor > 1) words.push(`${range(1, floor - 1)} lost to the caps or the age`)
  if (earliest > floor) words.push(`${range(floor, earliest - 1)} ${gone(state)}`)
  if (earliest <= head) words.push(`${range(earliest, head)}: ${count(live)} live`)
  return `${words.join("; ")}.`
}

function gone({ type }) {
  return `${type === "queue" ? "done, given up, " : ""}deleted, expired or lost`
}

function range(from, to) {
  return from === to ? count(from) : `${count(from)} to ${count(to)}`
}
