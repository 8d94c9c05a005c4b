"""The routers of a simulation: what clients ask of them, and what their dests hold when all is over.

router_requests  what is said of routers, as clients say it over HTTP
router_workload  what simulated clients ask of routers: any between any topics, and some that stand for good
"""
