"""The site of the documentation: docs/, and pages of reference made from the code.

conf          what Sphinx reads: the look, and links of paths that pages name
python_pages  the public names of `topics`, by autodoc
http_page     the calls over HTTP, from the document that a server gives as /v0/openapi.json
command_page  the command line, and the settings
__main__      one folder of all sources, then Sphinx; the least warning ends it
"""
