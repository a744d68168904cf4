"""Private servers for tests: real ones, on free ports, with data in a temporary folder.

`test/servers/with KIND[,KIND…] -- COMMAND…` runs a command beside them; a Python test takes a Rig
(rig.py) of its own. Whatever happens to the process that started them, they end with it
(guardian.py).
"""
