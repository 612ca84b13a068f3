"""The Python programs of an installation: trireme-job, trireme-calibrate and trireme-tensorboard.

They run with Python 3.6 and its standard library alone, which login nodes with SLES 15 or RHEL 8 have. This file and the
programs that import it are valid in older versions too, so that those print an error and no traceback.
"""
import os
import sys

LOWEST = (3, 6)


def program():
    """The name by which the user started the program: trireme-job if installed, tools/job in the repository."""
    name = os.path.basename(sys.argv[0])
    return name if name.startswith("trireme-") else "tools/" + name


def need_python(version=None):
    """Ends the program with exit code 2 if Python is too old for it."""
    found = tuple(version or sys.version_info)[:2]
    if found < LOWEST:
        sys.stderr.write("%s: error: Python %d.%d is too old; start it with Python %d.%d or newer, such as "
                         "`python3.11 %s`\n" % ((program(),) + found + LOWEST + (sys.argv[0],)))
        sys.exit(2)
