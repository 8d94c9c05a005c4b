"""Records out of a topic into a file, and back.

exporting  a topic into a file: every record up to the head, and of what is lost a count by reason
importing  a file as records, each with its place in it
kafka      messages of Kafka, as tools write them that dump a topic, into records
ledgerq    a topic as a directory of ledgerq, and such a directory as a topic
outlet     a file that is there whole or not at all; or a pipe, a device, standard output
parquet    a record as a row of Parquet, both ways
putting    records into a topic, in batches, each of them all or nothing
rows       a record as a line of JSON or a row of CSV, both ways
"""
