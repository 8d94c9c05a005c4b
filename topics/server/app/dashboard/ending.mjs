// The button that ends what its row is of: a router, a schedule, a consumer.
import { button, put, sure } from "./dom.mjs"
import { attempt } from "./api.mjs"

// `question`: what is asked before; `end`: does it, and answers whether it was there. What came of it stands in `said`, which
// then has the focus, for the row with the button goes.
export function ending(what, name, question, said, end) {
  return button("Remove…", async () => {
    if (!(await sure(question(), `Remove the ${what}`))) return
    put(said)
    await attempt(said, async () => {
      put(said, (await end()) ? `The ${what} ${name} was removed.` : `There was no ${what} ${name} any more.`)
      said.tabIndex = -1
      said.focus()
    })
  }, { "aria-label": `Remove the ${what} ${name}…` })
}
