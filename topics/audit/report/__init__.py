"""Violations for people and for machines.

html_page   findings as one HTML page with charts: no script, no style sheet, no network
violations  violations for people and for machines: text, lines of JSON, one JSON document; and a row for each
            check
"""
