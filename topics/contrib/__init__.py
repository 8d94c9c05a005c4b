"""topics as what other frameworks have a place for. Each module needs its framework, which an extra brings.

Nothing is imported here, and nothing of the rest of the house imports this.

    django   a backend of `django.tasks`, and the command that does the tasks: topics-log[django]
    taskiq   a broker of Taskiq: topics-log[taskiq]
"""
