"""Topics watched live: what comes to them is told as it comes, and what is lost as well (http-api 9; decision 70).

values       what a watch gives
rules        its signature, and where it begins
cursors      where it is, topic by topic
events       Server-Sent Events: bytes become events
frames       events become values
session      a watch at a server: what is sent, and what is made of the answers
rounds       a watch of a store in this process: one read after another
course       the steps of a watch, and what was asked and is not answered
watch        `Watch`, for threads
async_watch  `AsyncWatch`, for tasks
"""
