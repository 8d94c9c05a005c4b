// Topics watched live, by server-sent events: for a browser as it is, for Node with --experimental-eventsource.
// When a stream breaks another session is begun where this one was, as often as it takes: EventSource would come again by
// itself, but not to a server that was restarted, and of a server that is away each browser makes something else.
// Nothing is lost on the way or told twice; what the server has lost is told as well.
export async function watch(url, topics, told) {
  const at = structuredClone(topics) // such as {"quakes": {"from_seq": 41}, "alarms": {"tail": true}}
  let source, isAgain = false, isOver = false

  async function begin() {
    if (isOver) return
    const body = JSON.stringify({ topics: at, include_tags: true })
    const headers = { "content-type": "application/json" }
    const answer = await fetch(`${url}/v0/watch?lenient=${isAgain}`, { method: "POST", headers, body })
    const session = await answer.json()
    if (!answer.ok) throw new Error(session.error.message)
    for (const [topic, { from_seq, epoch }] of Object.entries(session.topics)) {
      if (!("from_seq" in at[topic])) at[topic].from_seq = from_seq
      at[topic] = { epoch, ...at[topic] }
      delete at[topic].tail
    }
    isAgain = true
    source = new EventSource(url + session.stream_url)
    on("record", ({ topic, records, to_seq }) => {
      for (const record of records) told.record?.(topic, record)
      at[topic].from_seq = to_seq
    })
    on("tombstone", (lost) => {
      told.tombstone?.(lost.topic, lost)
      at[lost.topic] = lost.reason === "recreated" ? { from_seq: 0, epoch: lost.epoch } : { ...at[lost.topic], from_seq: lost.gap_to }
    })
    on("caught-up", (here) => told.caughtUp?.(here.topic, here))
    on("topic-deleted", ({ topic }) => {
      told.deleted?.(topic)
      delete at[topic]
      if (Object.keys(at).length === 0) stop()
    })
    source.onerror = ({ data }) => {
      if (data) return // what the server says before it ends a stream, or only that it is slow
      source.close()
      setTimeout(later, 1000)
    }
  }

  function on(event, take) {
    source.addEventListener(event, ({ data }) => take(JSON.parse(data)))
  }

  function later() {
    begin().catch(() => setTimeout(later, 1000)) // nobody is there yet
  }

  function stop() {
    isOver = true
    source?.close()
  }

  await begin()
  return { at, stop }
}
