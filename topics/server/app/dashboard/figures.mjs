// The server's metrics as JSON, by the name of a sample; and what two looks at them say together.
import { call } from "./api.mjs"

export class Figures {
  constructor(families, at) {
    this.at = at
    this.samples = new Map()
    for (const { samples } of families) {
      for (const sample of samples) {
        const found = this.samples.get(sample.name)
        if (found) found.push(sample)
        else this.samples.set(sample.name, [sample])
      }
    }
  }

  static async look(signal) {
    const { metrics } = await call("metrics", { signal })
    return new Figures(metrics, performance.now())
  }

  all(name) {
    return this.samples.get(name) ?? []
  }

  // The sum over all labels; null if nothing of that name is told.
  sum(name) {
    const found = this.samples.get(name)
    return found === undefined ? null : found.reduce((sum, { value }) => sum + value, 0)
  }

  by(name, label) {
    return new Map(this.all(name).map(({ labels, value }) => [labels[label], value]))
  }

  // How much a counter has grown since an earlier look, a second.
  rate(name, before) {
    if (before === null || this.sum(name) === null || before.sum(name) === null) return null
    const grown = this.sum(name) - before.sum(name)
    return grown < 0 ? null : (grown * 1000) / (this.at - before.at) // the server was restarted
  }

  // The quantile of what a histogram took since an earlier look, or ever; null if that was nothing.
  quantile(name, q, before = null) {
    const buckets = this.all(`${name}_bucket`).map(({ labels, value }, i) => {
      const earlier = before?.all(`${name}_bucket`)[i]?.value ?? 0
      return [labels.le === "+Inf" ? Infinity : Number(labels.le), value >= earlier ? value - earlier : value]
    })
    const total = buckets.at(-1)?.[1] ?? 0
    if (total === 0) return null
    let [low, below] = [0, 0]
    for (const [high, count] of buckets) {
      if (count >= q * total) return high === Infinity ? low : low + ((high - low) * (q * total - below)) / (count - below)
      ;[low, below] = [high, count]
    }
    return low
  }
}
