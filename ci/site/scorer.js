// How Sphinx's search ranks what it finds. The numbers are Sphinx's own; pages of the maintainers' house come behind those of users.
var Scorer = {
  score: ([page, , , , score]) => (page.startsWith("dev/") ? score - 100 : score),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
}
