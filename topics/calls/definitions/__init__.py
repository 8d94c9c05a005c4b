"""Calls on what stands beside topics and acts on them by itself.

routers    the calls on routers, and a router as JSON and as a value
schedules  the calls on schedules, and a schedule as JSON and as a value
"""
