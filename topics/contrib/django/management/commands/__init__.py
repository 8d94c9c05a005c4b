"""What `manage.py` can be asked for.

topics_worker  does the tasks of a queue
"""
