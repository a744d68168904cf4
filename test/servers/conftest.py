"""Tests of the private servers themselves."""

import os
import sys

os.environ.setdefault("IDEM_SERVERS_FOLDER", "/dev/shm")
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
